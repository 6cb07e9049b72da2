"""Runs the cases of a stage in processes, within a limit of time, and keeps each row at once."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.common import store
from benchmarks.training.gpu_stages._case import Case, Row, Rows, Target

ROOT = Path(__file__).parents[3]
KEYS = ("gpu", "torch", "stage", "case")
# What `workers.runtime.processes` sets; four such processes share the cores.
AS_A_WORKER = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS"), "3"),
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
}


class Book:
    """The rows by stage and case, of one GPU and version of torch.

    Args:
        path: of the file; None to keep nothing.
        machine: `gpu` and `torch`; a row of another machine is no row of this book.
    """

    def __init__(self, path: Path | None, machine: Mapping[str, str]) -> None:
        self.path = path
        self.machine = dict(machine)
        self._lock = threading.Lock()  # stages may run side by side
        self.stages: dict[str, dict[str, Row]] = {}
        for row in store.load(path, *KEYS).values() if path is not None else ():
            if all(row[key] == value for key, value in self.machine.items()):
                self.stages.setdefault(row["stage"], {})[row["case"]] = row

    def rows(self, stage: str) -> Rows:
        """The rows of a stage, by case."""
        return self.stages.get(stage, {})

    def add(self, stage: str, case: str, row: Row) -> None:
        """Keep a row."""
        whole = {**self.machine, "stage": stage, "case": case, **row}
        with self._lock:
            self.stages.setdefault(stage, {})[case] = whole
            if self.path is not None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                store.add(self.path, whole)

    def missing(self, stage: str, cases: Sequence[Case]) -> list[Case]:
        """The cases without a row, then those that have failed."""
        rows = self.rows(stage)
        failed = [case for case in cases if "failure" in rows.get(case.name, {})]
        return [case for case in cases if case.name not in rows] + failed


class MeasuringProcess:
    """A process that measures one case after the other; see `_child`."""

    def __init__(self, target: Target) -> None:
        module = "benchmarks.training.gpu_stages._child"
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(asdict(target))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**AS_A_WORKER, **os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,
        )

    def ask(self, stage: str, case: Case, seconds: float) -> Row | None:
        """The row of a case; None if the process has not answered in time."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"stage": stage, "case": asdict(case)}) + "\n")
            self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            return None
        line = self._process.stdout.readline()
        if not line:
            return {"failure": f"the process ended with status {self._process.wait()}"}
        row: Row = json.loads(line)
        return row

    def close(self) -> None:
        """End the process and those that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def run_stage(
    stage: str, cases: Sequence[Case], target: Target, book: Book, seconds: float
) -> list[Case]:
    """Measure the missing cases of a stage within a limit of time.

    A process that has failed, or was too slow, is not used again: its GPU context may be lost.

    Returns:
        The cases that are left, because the time was over.
    """
    end = time.monotonic() + seconds
    todo = book.missing(stage, cases)
    process: MeasuringProcess | None = None
    shared = ""
    try:
        for index, case in enumerate(todo):
            if process is not None and case.process != shared:
                process.close()
                process = None
            left = end - time.monotonic()
            if left <= 0:
                return todo[index:]
            shared = case.process
            process = process or MeasuringProcess(target)
            row = process.ask(stage, case, min(left, case.seconds))
            if row is None and left < case.seconds:
                return todo[index:]
            row = row or {"failure": f"took more than {case.seconds:.0f} s"}
            book.add(stage, case.name, row)
            text = f"{row.get('failure') or 'took'} {row.get('took', '')}"
            print(f"  {stage}, {case.name}: {text}", flush=True)
            if "failure" in row:
                process.close()
                process = None
        return []
    finally:
        if process is not None:
            process.close()
