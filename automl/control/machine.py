"""What a sweep has to do with its machine: signals, memory, GPUs, and what goes on record of it."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.metadata import distributions
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final

import psutil

from automl import __version__
from automl.core import SweepSpec
from automl.dispatch._make import local_slots
from automl.dispatch.gpus import GpuLocks, shared_gpus
from automl.errors import UsageError
from automl.suggesters.queue import wait_for_threads
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
        self._spec, self._local = spec, local
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
            request = {"key": key, "params": dict(params), "ranks": ranks}
            print(json.dumps(request), file=process.stdin, flush=True)
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
        about = {
            "workload": spec.workload,
            "data": dict(spec.data),
            "fixed": dict(spec.fixed),
            "device": "cuda" if spec.resources.gpus > 0 else "cpu",
        }
        print(json.dumps(about), file=process.stdin)
        threading.Thread(
            target=self._listen, args=(process,), name="automl-memory-guard", daemon=True
        ).start()
        return process

    def _listen(self, process: subprocess.Popen[str]) -> None:
        with contextlib.suppress(ValueError, OSError):
            for line in process.stdout or ():
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
        os.environ.pop(VARIABLE, None)
        if before is not None:
            os.environ[VARIABLE] = before


_PACKAGES: Final = (
    "torch", "botorch", "gpytorch", "ax-platform", "ray", "optuna", "sqlalchemy", "numpy",
    "sacrebleu", "sentencepiece",
)  # fmt: skip


def describe() -> dict[str, Any]:
    """Git commit (None outside a repository) and whether it has changes, versions, hardware."""
    commit = _git("rev-parse", "HEAD")
    return {
        "git_commit": commit,
        "git_dirty": bool(_git("status", "--porcelain", "--untracked-files=no"))
        if commit
        else None,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "packages": {
            "automl": __version__,
            **{name: one.version for name in _PACKAGES for one in distributions(name=name)},
        },
        "hardware": _hardware(),
    }


def _git(*arguments: str) -> str | None:
    """What git prints; None if it cannot be run or fails."""
    try:
        done = subprocess.run(
            ["git", *arguments], capture_output=True, text=True, errors="replace", timeout=5
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _hardware() -> dict[str, Any]:
    """All hardware if torch is already imported (its import takes seconds), else CPU and memory."""
    if "torch" in sys.modules:
        return asdict(detect())
    return {"num_cpus": os.cpu_count(), "memory_bytes": psutil.virtual_memory().total}


IMPATIENT_SECONDS: Final = 10.0  # after a Ctrl-C, in which further ones add nothing
WAIT_SECONDS: Final = 30.0  # for a suggestion that nobody needs any more


class StopSignals:
    """Counts SIGINT and SIGTERM while it is entered; does nothing outside the main thread.

    Args:
        interrupts: raise KeyboardInterrupt at the second signal, because trials run in the main
            thread. Leaving the context handles the KeyboardInterrupt.

    Attributes:
        count: of the signals so far.
    """

    def __init__(self, *, interrupts: bool = False) -> None:
        self._interrupts, self._raises, self.count = interrupts, False, 0
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        self.install()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
            if self.count and isinstance(handler, SafeEnd):
                handler.taken = time.monotonic()
        self._previous.clear()
        return isinstance(error, KeyboardInterrupt)

    def install(self) -> None:
        """Install the handlers; call it again after Ray has installed its own."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous.setdefault(number, signal.signal(number, self._on_signal))

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Inside, the first signal raises KeyboardInterrupt: no trial runs yet."""
        self._raises = True
        try:
            yield
        finally:
            self._raises = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self._raises or (self.count == 2 and self._interrupts):
            raise KeyboardInterrupt


class SafeEnd:
    """Around a sweep: once a Ctrl-C was taken, further ones do not cut short how the sweep ends.

    So it is closed, and says how it can be resumed. Does nothing outside the main thread.

    Attributes:
        taken: when the last Ctrl-C was taken, by the monotonic clock; minus infinity before.
    """

    def __init__(self) -> None:
        self.taken = -float("inf")
        self._previous: Any = None

    def __enter__(self) -> None:
        previous = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and callable(previous):
            self._previous = previous
            signal.signal(signal.SIGINT, self)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Take a signal as the handler before would, unless one was taken shortly before."""
        now = time.monotonic()
        if now > self.taken + IMPATIENT_SECONDS:
            self.taken = now
            self._previous(number, frame)

    def __exit__(self, *error: object) -> None:
        if self.taken > 0:
            # If a thread imports torch at the end of a script, CPython forgets that nobody has
            # handled a KeyboardInterrupt, and the exit status is 1.
            wait_for_threads(WAIT_SECONDS)
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
