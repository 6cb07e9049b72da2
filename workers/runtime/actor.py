"""A warm worker: a Ray actor that runs one rank of one attempt at a time and is used again for the next.

What it has to say waits in a mailbox of its own until the controller takes it (`take`, answered by a thread of its
own): a report costs the trial microseconds, and reaches the controller a millisecond later.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import IO, Any

from workers.protocol import LEAVING, Assignment, Event, Halt, Outcome, Pulse, Started, log_of

CONCURRENCY_GROUPS = {
    "mail": 1,
    "control": 1,
}  # `take` is called in the first, `halt` and `address` in the second


class Worker:
    """Runs ranks; `CONCURRENCY_GROUPS` says which thread answers what.

    Args:
        objective: pickled by cloudpickle, or None where workloads are run.
        workload: name of the workload that will be run, imported ahead of the first attempt.
        threads: CPU threads of this process.
        paths: where modules are found besides, as in the process that made the objective.
        name: of its sweep and slot, as the Ray dashboard shows it.
    """

    def __init__(
        self,
        objective: bytes | None,
        workload: str | None,
        threads: int,
        paths: Sequence[str] = (),
        name: str = "worker",
    ) -> None:
        self._name = name
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ[name] = str(threads)
        sys.path += [path for path in paths if path not in sys.path and Path(path).exists()]
        self._objective: Callable[[Any], Any] | None = None
        self._broken = ""
        try:
            self._warm(objective, workload, threads)
        except (
            Exception
        ) as error:  # told by `ready`; an actor that fails to begin would only say that it died
            self._broken = f"{type(error).__name__}: {error}"
        self._mail: deque[Event] = deque()
        self._arrived = threading.Condition()
        self._halts: dict[tuple[int, int], Halt] = {}
        self._moved, self._steps = time.monotonic(), 0
        self._meeting: Any = None  # kept until the next one: other ranks may still leave it
        self._running = self._leaving = False
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_notice)

    def __repr__(self) -> str:
        return self._name

    def ready(self) -> tuple[str, str]:
        """The node's id, and why this worker cannot be used ("" where it can)."""
        import ray

        return ray.get_runtime_context().get_node_id(), self._broken

    def run(self, assignment: Assignment, rank: int = 0, rendezvous: str = "") -> Outcome:
        """Run one rank of an attempt to its end; rank 0 also puts its reports and outcome into the mailbox."""
        from workers.context import Context
        from workers.run import run

        self._moved, self._steps = time.monotonic(), 0
        key = (assignment.trial, assignment.attempt)
        context = Context(
            assignment,
            send=self._send if rank == 0 else lambda report: None,
            halted=lambda: self._halted(key),
            rank=rank,
            world_size=assignment.num_ranks,
            rendezvous=rendezvous,
            device="cuda:0" if assignment.gpus > 0 else "cpu",
        )
        if rank == 0:
            self._send(Started(*key, f"{socket.gethostname()}:{os.getpid()}"))
        self._running = True
        with _logged(assignment, rank):
            outcome = run(context, self._objective)
        self._running = False
        self._halts.pop(key, None)
        if self._leaving:
            message = outcome.message or "the machine of its worker is being taken away"
            outcome = replace(outcome, message=message, details={**outcome.details, LEAVING: True})
        if rank == 0:
            self._send(outcome)
        return outcome

    def take(self, timeout: float) -> tuple[list[Event], Pulse]:
        """Wait for mail; returns it with how the attempt goes on."""
        with self._arrived:
            self._arrived.wait_for(lambda: self._mail, timeout)
            mail = list(self._mail)
            self._mail.clear()
        return mail, Pulse(time.monotonic() - self._moved, self._steps)

    def dump(self, assignment: Assignment, rank: int) -> None:
        """Write where each thread is to the rank's log; works while the attempt hangs."""
        with log_of(assignment, rank).open("a") as log:
            log.write("the attempt hangs; this is where its threads are\n")
            log.flush()
            faulthandler.dump_traceback(log)

    def halt(self, trial: int, attempt: int, how: Halt) -> None:
        """Ask an attempt to end; it may not have begun yet."""
        self._halts[trial, attempt] = how

    def address(self) -> str:
        """Where the ranks of a gang on several nodes can meet: a store that listens already, on a port of its own."""
        import ray
        from torch._C._distributed_c10d import TCPStore

        host = ray.util.get_node_ip_address()
        self._meeting = TCPStore(host, 0, is_master=True, wait_for_workers=False)
        return f"tcp://{host}:{self._meeting.port}"

    def _warm(self, objective: bytes | None, workload: str | None, threads: int) -> None:
        if objective is not None:
            from ray import cloudpickle

            self._objective = cloudpickle.loads(objective)
        if workload is not None:
            from workers.workloads import WORKLOADS

            WORKLOADS.get(workload)
        import torch  # once a worker, before the first attempt

        torch.set_num_threads(threads)
        gc.collect()
        gc.freeze()  # what is imported stays: collecting it again before each trial takes a tenth of a second

    def _send(self, event: Event) -> None:
        self._moved = time.monotonic()
        with self._arrived:
            self._mail.append(event)
            self._arrived.notify()

    def _halted(self, key: tuple[int, int]) -> Halt | None:
        self._moved, self._steps = time.monotonic(), self._steps + 1
        return self._halts.get(key) or (Halt.INTERRUPT if self._leaving else None)

    def _on_notice(self, number: int, frame: FrameType | None) -> None:
        """SIGTERM: this machine is about to be taken away; what runs is asked to end with a checkpoint."""
        if not self._running:
            os._exit(0)
        self._leaving = True


class _Tee:
    """A text stream that writes to two."""

    def __init__(self, first: IO[str], second: IO[str]) -> None:
        self._first, self._second = first, second

    def write(self, text: str) -> int:
        self._second.write(text)
        return self._first.write(text)

    def flush(self) -> None:
        self._first.flush()
        self._second.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._first, name)


@contextmanager
def _logged(assignment: Assignment, rank: int) -> Iterator[None]:
    """Copy what is printed to `logs/attempt-<a>-rank-<r>.log` in the trial's folder, besides Ray's own log."""
    path = log_of(assignment, rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    output, errors = sys.stdout, sys.stderr
    with path.open("a", buffering=1, encoding="utf-8", errors="replace") as log:
        _show_in_dashboard(path, assignment, rank)
        sys.stdout, sys.stderr = _Tee(output, log), _Tee(errors, log)
        try:
            print(assignment.label, flush=True)
            yield
        finally:
            sys.stdout, sys.stderr = output, errors


def _show_in_dashboard(path: Path, assignment: Assignment, rank: int) -> None:
    """Give the log a name among those that Ray's dashboard lists for this node."""
    from ray._private import worker

    node = worker._global_node
    if node is None:  # not in a process of Ray's
        return
    name = (
        f"{assignment.sweep}-trial-{assignment.trial}-attempt-{assignment.attempt}-rank-{rank}.log"
    )
    link = Path(node.get_logs_dir_path(), name)
    with suppress(
        OSError
    ):  # a folder that allows no links: the log itself is in the trial's folder
        link.unlink(missing_ok=True)  # of a sweep of that name in another store
        link.symlink_to(path)
