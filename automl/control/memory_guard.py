"""What each trial's memory is expected to be, before it is dispatched; what cannot fit by far is not dispatched."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from automl.core.spec import SweepSpec
from search_spaces.hardware import detect, memory_limit
from workers.protocol import Outcome, Params

# Estimates are right to about a fifth, and the best configuration often lies right at the limit: only what is far
# beyond it is given up unseen.
FAR: Final = 1.5
PATIENCE_SECONDS: Final = 60.0  # for an estimate; then the trial begins without one


@dataclass(frozen=True)
class Forecast:
    """The expected peak memory of a rank, and of it the ten modules that hold most."""

    peak_bytes: int
    modules: Mapping[str, int]


class Forecasts:
    """Asks a process of its own for estimates, so that the controller never waits for one while workers need it.

    Used from the controller's thread.

    Args:
        spec: of the sweep; nothing is estimated where it runs no workload that is trained by gradient descent.
        enabled: whether the dispatcher runs trials for real.
        local: whether trials run on this machine; elsewhere only `resources.memory` is known as a limit.
    """

    def __init__(self, spec: SweepSpec, enabled: bool = True, local: bool = True) -> None:
        self._spec, self._local = spec, local
        self._relevant = {
            name for name, p in spec.space.parameters.items() if "memory" in p.affects
        }
        self._asked: dict[str, float] = {}
        self._found: dict[str, Forecast | None] = {}
        self._process: subprocess.Popen[str] | None = None
        self._enabled = enabled and spec.workload is not None and _trains(spec.workload)

    def settled(self, params: Params, ranks: int) -> bool:
        """Whether a trial can begin: its estimate is there, cannot be made, or is not worth waiting for any longer."""
        if not self._enabled:
            return True
        key = self._key(params)
        if key not in self._asked:
            self._ask(key, params, ranks)
        late = time.monotonic() - self._asked[key] > PATIENCE_SECONDS
        return key in self._found or late or not self._enabled

    def find(self, params: Params) -> Forecast | None:
        """The estimate for a configuration, where there is one."""
        return self._found.get(self._key(params)) if self._enabled else None

    def refusal(self, params: Params, ranks: int) -> str:
        """Why a configuration is not worth dispatching, "" where it is."""
        found = self.find(params)
        limit = (
            self.limit(ranks) if found is not None else None
        )  # reads files: not where nobody asks
        if found is None or limit is None or found.peak_bytes <= FAR * limit:
            return ""
        each = " a rank" if ranks > 1 else ""
        return (
            f"not dispatched: it is estimated to need {found.peak_bytes / 1e9:.2f} GB{each}, and there are "
            f"{limit / 1e9:.2f} GB{each}"
        )

    def limit(self, ranks: int) -> int | None:
        """Bytes that a rank may use, None where that is not known."""
        resources = self._spec.resources
        if resources.memory is not None:
            return resources.memory
        if not self._local:
            return None
        if resources.gpus > 0:
            gpus = [gpu.memory_bytes for gpu in detect().gpus]
            return int(min(gpus) * min(1.0, resources.gpus)) if gpus else None
        return memory_limit() // max(1, ranks)

    def details(self, params: Params) -> dict[str, Any]:
        """What the ledger keeps of an estimate; empty where there is none."""
        found = self.find(params)
        if found is None:
            return {}
        return {
            "estimated_memory_bytes": found.peak_bytes,
            "estimated_memory_by_module_bytes": dict(found.modules),
        }

    def beside(self, outcome: Outcome, params: Params) -> Outcome:
        """The outcome with the estimate among its details."""
        found = self.details(params)
        return replace(outcome, details={**found, **outcome.details}) if found else outcome

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _key(self, params: Params) -> str:
        return json.dumps({k: v for k, v in params.items() if k in self._relevant}, sort_keys=True)

    def _ask(self, key: str, params: Params, ranks: int) -> None:
        self._asked[key] = time.monotonic()
        try:
            process = self._process or self._start()
            assert process.stdin is not None
            process.stdin.write(
                json.dumps({"key": key, "params": dict(params), "ranks": ranks}) + "\n"
            )
            process.stdin.flush()
        except OSError:
            self._enabled = False  # trials can do without

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
            start_new_session=True,  # Ctrl-C is the controller's to handle
        )
        assert process.stdin is not None
        device = "cuda" if spec.resources.gpus > 0 else "cpu"
        about = {
            "workload": spec.workload,
            "data": dict(spec.data),
            "fixed": dict(spec.fixed),
            "device": device,
        }
        process.stdin.write(json.dumps(about) + "\n")
        threading.Thread(
            target=self._listen, args=(process,), name="automl-forecasts", daemon=True
        ).start()
        return process

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with contextlib.suppress(ValueError, OSError):
            for line in process.stdout:
                answer = json.loads(line)
                made = (
                    None if "error" in answer else Forecast(answer["peak_bytes"], answer["modules"])
                )
                self._found[answer["key"]] = made
        self._enabled = False  # it has ended


def _trains(workload: str) -> bool:
    from workers.workload import Trainable
    from workers.workloads import WORKLOADS

    return issubclass(WORKLOADS.get(workload), Trainable)
