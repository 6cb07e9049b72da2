"""What a sweep takes of a machine: the memory of a trial is estimated before, GPUs are locked."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from automl.core import SweepSpec
from automl.dispatch._make import local_slots
from automl.dispatch.gpus import GpuLocks, shared_gpus
from automl.errors import UsageError
from search_spaces.hardware import detect, memory_limit
from workers.protocol import Outcome, Params
from workers.runtime.devices import VARIABLE, desktop_bytes, gpus_of_slots

# Estimates are accurate to about 20%, and the best configuration is often close to the limit. So
# a trial is refused only if its estimate exceeds the limit by this factor.
REFUSAL_FACTOR: Final = 1.5
ESTIMATE_SECONDS: Final = 60.0  # for an estimate; then the trial begins without one


@dataclass(frozen=True)
class MemoryEstimate:
    """The estimated peak memory of a rank, in bytes.

    Args:
        peak_bytes: of its tensors.
        modules: the part of the ten largest modules.
        device_bytes: what its process takes of a GPU besides.
    """

    peak_bytes: int
    modules: Mapping[str, int]
    device_bytes: int = 0


class MemoryGuard:
    """Estimates memory in a process of its own, so that the controller never waits for it.

    Used from the controller's thread.

    Args:
        spec: of the sweep; only workloads that are trained by gradient descent are estimated.
        enabled: whether the dispatcher runs trials for real.
        local: whether trials run on this machine; elsewhere the limit is what the roomiest node
            has told with an outcome, unknown before the first.
    """

    def __init__(self, spec: SweepSpec, enabled: bool = True, local: bool = True) -> None:
        self._spec = spec
        self._local = local
        self._relevant = {
            name for name, p in spec.space.parameters.items() if "memory" in p.affects
        }
        self._requested: dict[str, float] = {}  # when
        self._room_of_nodes = 0  # bytes for a rank, on the roomiest node so far
        self._estimates: dict[str, MemoryEstimate | None] = {}
        self._process: subprocess.Popen[str] | None = None
        self._enabled = enabled and spec.workload is not None and _trains(spec.workload)

    def ready(self, params: Params, ranks: int) -> bool:
        """Whether a trial may begin; requests its estimate first if there is none."""
        if not self._enabled:
            return True
        key = self._key(params)
        if key not in self._requested:
            self._request(key, params, ranks)
        late = time.monotonic() - self._requested[key] > ESTIMATE_SECONDS
        return key in self._estimates or late or not self._enabled

    def estimate(self, params: Params) -> MemoryEstimate | None:
        """The estimate for a configuration; None if there is none."""
        return self._estimates.get(self._key(params)) if self._enabled else None

    def refusal(self, params: Params, ranks: int) -> str:
        """Why a configuration is not dispatched; "" if it may be."""
        found, limit = self.estimate(params), self.limit(ranks)
        if found is None or limit is None or self._needed(found) <= REFUSAL_FACTOR * limit:
            return ""
        amount, room = (f"{number / 1e9:.2f} GB" for number in (self._needed(found), limit))
        each = " a rank" if ranks > 1 else ""
        return f"not dispatched: it is estimated to need {amount}{each}, and there are {room}{each}"

    def _needed(self, found: MemoryEstimate) -> int:
        # A limit of the user is one of tensors.
        return found.peak_bytes + (found.device_bytes if self._spec.resources.memory is None else 0)

    def limit(self, ranks: int) -> int | None:
        """Bytes that a rank may use; None if that is not known."""
        resources = self._spec.resources
        if resources.memory is not None:
            return resources.memory
        if not self._local:
            return self._room_of_nodes or None
        if resources.gpus > 0:
            gpus = [gpu.memory_bytes for gpu in detect().gpus]
            taken = desktop_bytes() if len(gpus) == 1 else 0
            return int((min(gpus) - taken) * min(1.0, resources.gpus)) if gpus else None
        return memory_limit() // max(1, ranks)

    def facts(self, params: Params) -> dict[str, Any]:
        """The estimate as fields of an outcome; empty if there is none."""
        found = self.estimate(params)
        if found is None:
            return {}
        return {
            "estimated_memory_bytes": found.peak_bytes,
            "details": {"estimated_memory_by_module_bytes": dict(found.modules)},
        }

    def add_estimate(self, outcome: Outcome, params: Params) -> Outcome:
        """The outcome with the estimate; what it tells of its node's memory is kept."""
        self._room_of_nodes = max(self._room_of_nodes, outcome.memory_limit_bytes or 0)
        facts = self.facts(params)
        if not facts:
            return outcome
        return replace(outcome, **{**facts, "details": {**facts["details"], **outcome.details}})

    def close(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _key(self, params: Params) -> str:
        return json.dumps({k: v for k, v in params.items() if k in self._relevant}, sort_keys=True)

    def _request(self, key: str, params: Params, ranks: int) -> None:
        self._requested[key] = time.monotonic()
        try:
            process = self._process or self._start()
            assert process.stdin is not None
            request = {"key": key, "params": dict(params), "ranks": ranks}
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except OSError:  # the process has ended
            self._enabled = False  # trials begin without estimates

    def _start(self) -> subprocess.Popen[str]:
        spec = self._spec
        self._process = process = subprocess.Popen(
            [sys.executable, "-c", "from workers.memory import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
            },
            start_new_session=True,  # the controller handles Ctrl-C
        )
        assert process.stdin is not None
        about = {
            "workload": spec.workload,
            "data": dict(spec.data),
            "fixed": dict(spec.fixed),
            "device": "cuda" if spec.resources.gpus > 0 else "cpu",
        }
        process.stdin.write(json.dumps(about) + "\n")
        threading.Thread(
            target=self._listen, args=(process,), name="automl-memory-guard", daemon=True
        ).start()
        return process

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with contextlib.suppress(ValueError, OSError):
            for line in process.stdout:
                answer = json.loads(line)
                self._estimates[answer["key"]] = (
                    None
                    if "error" in answer
                    else MemoryEstimate(
                        answer["peak_bytes"], answer["modules"], answer["device_bytes"]
                    )
                )
        self._enabled = False  # the process has ended


def _trains(workload: str) -> bool:
    from workers.workload import Trainable
    from workers.workloads import WORKLOADS

    return issubclass(WORKLOADS.get(workload), Trainable)


def lock_gpus(
    spec: SweepSpec, locks: GpuLocks, note: Callable[[str, str], None], *, serial: bool
) -> list[str]:
    """Lock the GPUs of a sweep until it ends; those that others use are passed over.

    Args:
        note: records that.
        serial: whether a trial runs at a time, so that the GPUs of one slot are enough.

    Returns:
        Their names; none without nvidia-smi: then the dispatcher finds the GPUs by itself.

    Raises:
        UsageError: this process may use fewer GPUs than the workers need, or others hold them.
    """
    gpus, each = shared_gpus(), spec.resources.gpus
    if not gpus:
        return []
    workers = None if spec.workers is None else local_slots(spec)
    most = gpus_of_slots(workers, each) if workers else len(gpus)
    least = gpus_of_slots(1, each) if serial or not workers else most
    if least > len(gpus):
        raise UsageError(
            f"{workers or 1} workers of {each:g} GPUs need {least} GPUs, and this process may use "
            f"{len(gpus)} ({', '.join(gpu.uuid for gpu in gpus)}): ask for fewer workers"
        )
    chosen = locks.take(most, gpus, least=least)
    if used := "; ".join(str(gpu) for gpu in gpus if gpu.users):
        note("gpus", f"passed over, since others use them: {used}")
    return chosen


@contextmanager
def visible(gpus: Sequence[str]) -> Iterator[None]:
    """Inside, workers that start, or a Ray, see these GPUs only; all if none is named."""
    before = os.environ.get(VARIABLE)
    if gpus:
        os.environ[VARIABLE] = ",".join(gpus)
    try:
        yield
    finally:
        if gpus:
            del os.environ[VARIABLE]
        if before is not None:
            os.environ[VARIABLE] = before
