"""Estimates the memory of each trial before it is dispatched, and refuses far too large ones."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from automl.core import SweepSpec, Trial
from search_spaces import Choice, Float, Int, Space
from search_spaces.errors import UsageError
from search_spaces.hardware import detect, memory_limit
from workers.failures import gigabytes
from workers.own_loop.knobs import calls_prepare
from workers.protocol import Outcome, Params

from .own_memory import OwnMemory

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

    A function that calls `trial.prepare` is estimated too, unless its largest configuration fits,
    or it does what fake tensors cannot. The memory of an objective that is not estimated is
    predicted from the peaks of its earlier trials. Used from the controller's thread.

    Args:
        spec: of the sweep; only workloads that are trained by gradient descent are estimated.
        enabled: whether the dispatcher runs trials for real.
        local: whether trials run on this machine; elsewhere the limit is what the roomiest node
            has told with an outcome, unknown before the first.
        objective: the user's function; None for a workload, or if it is not here.
    """

    def __init__(
        self,
        spec: SweepSpec,
        enabled: bool = True,
        local: bool = True,
        objective: Callable[[Any], Any] | None = None,
    ) -> None:
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
        self._own = OwnMemory(spec) if enabled and spec.workload is None else None
        self._objective = objective
        self._folder: TemporaryDirectory[str] | None = None  # with the function for the process
        self._largest: Params | None = None  # of the space, estimated first for a function
        if enabled and local and objective is not None and calls_prepare(objective):
            self._largest = _largest(spec.space)
            self._enabled = self._largest is not None

    def ready(self, params: Params, ranks: int) -> bool:
        """Whether a trial may begin; requests its estimate first if there is none."""
        if not self._enabled:
            return True
        if self._largest is not None:
            if not self._answered(self._largest, 1):
                return params == self._spec.space.default()  # it need not wait
            known = self.estimate(self._largest)
            if known is None or not self._exceeds(known, ranks):
                self._enabled = False  # it does what fake tensors cannot, or everything fits
                self.close()
                return True
        return self._answered(params, ranks)

    def _answered(self, params: Params, ranks: int) -> bool:
        """Whether there is an estimate, or no time for it; requests it if it is new."""
        key = self._key(params)
        if key not in self._requested:
            self._request(key, params, ranks)
        late = time.monotonic() - self._requested[key] > ESTIMATE_SECONDS
        return key in self._estimates or late or not self._enabled

    def estimate(self, params: Params) -> MemoryEstimate | None:
        """The estimate for a configuration; None if there is none."""
        return self._estimates.get(self._key(params)) if self._enabled else None

    def observe(self, trial: Trial) -> None:
        """Learn from the peak of a trial of a user's objective."""
        if self._own is not None:
            self._own.observe(trial)

    def refusal(self, params: Params, ranks: int) -> str:
        """Why a configuration is not dispatched; "" if it may be."""
        known = self._enabled or (self._own is not None and self._own.informed)
        limit = self.limit(ranks) if known else None  # to read it takes a millisecond
        if limit is None:
            return ""
        found = self.estimate(params)
        if self._own is not None and found is None:
            needed = self._own.at_least(params, limit) or 0
            if needed <= limit:
                return ""
            how = "not dispatched: earlier trials show that it needs at least"
        elif found is None or not self._exceeds(found, ranks):
            return ""
        else:
            needed, how = self._needed(found), "not dispatched: it is estimated to need"
        amount, room = gigabytes(needed, limit)
        each = " a rank" if ranks > 1 else ""
        return f"{how} {amount}{each}, and there are {room}{each}"

    def _needed(self, found: MemoryEstimate) -> int:
        # A limit of the user is one of tensors.
        return found.peak_bytes + (found.device_bytes if self._spec.resources.memory is None else 0)

    def _exceeds(self, found: MemoryEstimate, ranks: int) -> bool:
        limit = self.limit(ranks)
        return limit is not None and self._needed(found) > REFUSAL_FACTOR * limit

    def limit(self, ranks: int) -> int | None:
        """Bytes that a rank may use; None if that is not known."""
        resources = self._spec.resources
        if resources.memory is not None:
            return resources.memory
        if not self._local:
            return self._room_of_nodes or None
        if resources.gpus > 0:
            gpus = [gpu.memory_bytes for gpu in detect().gpus]
            return int(min(gpus) * min(1.0, resources.gpus)) if gpus else None
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
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

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
        except (OSError, UsageError):  # a function that cannot be sent
            self._enabled = False  # trials begin without estimates

    def _start(self) -> subprocess.Popen[str]:
        spec = self._spec
        self._process = process = subprocess.Popen(
            [sys.executable, "-m", "workers.memory.server"],
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
            "objective": self._written(),
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

    def _written(self) -> str:
        """A file with the function; "" if there is none."""
        if self._objective is None:
            return ""
        from workers.runtime.pickling import write_objective

        self._folder = TemporaryDirectory()
        path = Path(self._folder.name) / "objective"
        with path.open("wb") as file:
            write_objective(self._objective, file)
        return str(path)

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


def _largest(space: Space) -> Params | None:
    """The configuration whose numbers that affect memory are largest; None if it is not legal."""
    sizes = {
        p.name: p.high
        for p in space.parameters.values()
        if isinstance(p, Float | Int) and "memory" in p.affects
    }
    sizes |= {
        p.name: max(numbers)
        for p in space.parameters.values()
        if isinstance(p, Choice) and "quality" in p.affects and "memory" in p.affects
        for numbers in [[c for c in p.choices if isinstance(c, int | float)]]
        if len(numbers) == len(p.choices)
    }
    found = space.complete({**(space.default() or {}), **sizes})
    return found if sizes and space.legal(found) else None


def _trains(workload: str) -> bool:
    from workers.workload import Trainable
    from workers.workloads import WORKLOADS

    return issubclass(WORKLOADS.get(workload), Trainable)
