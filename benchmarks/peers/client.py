"""Peers with their own packages: each has an environment in `benchmarks/.envs` and a process.

The process speaks JSON lines (`serve.py`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from automl.core.trial import Trial
from automl.suggesters._new_points import repair
from automl.suggesters._peers import observations
from automl.suggesters.base import Suggester
from workers.protocol import Params

ROOT = Path(__file__).parents[2]
ENVS = ROOT / "benchmarks" / ".envs"
# The arguments of successive calls of `pip install`. HEBO pins a numpy and a pymoo that have no
# wheel for Python 3.11, and lists GPy and CatBoost, which its default surrogate does not use. Syne
# Tune asks for xgboost, which brings CUDA. Sockeye asks for old torch and numpy, but runs with new.
HEBO_NEEDS = "torch>=2.10,<2.14 gpytorch pandas<2.3 scikit-learn disjoint-set pymoo==0.6.1.*"
PEERS = {
    "smac": [["smac==2.4.*"]],
    "hebo": [HEBO_NEEDS.split(), ["--no-deps", "HEBO==0.3.*"]],
    "syne": [
        [
            "dill",
            "pandas",
            "sortedcontainers",
            "statsmodels",
            "scikit-learn",
            "tqdm",
            "psutil",
            "xgboost-cpu",
        ],
        ["--no-deps", "syne-tune==0.16.*"],
    ],
    "sockeye": [
        ["torch>=2.10,<2.14", "pyyaml", "numpy<2.4", "sacrebleu>=2.4"],
        ["--no-deps", "sockeye==3.1.34"],
    ],
}


class CannotInstall(RuntimeError):
    """The packages of a peer cannot be installed on this machine."""


def environment(name: str) -> Path:
    """The Python of the peer's environment, which is made at the first call.

    Raises:
        CannotInstall: pip failed.
    """
    folder = ENVS / name
    python = folder / "bin" / "python"
    if not installed(name):
        print(f"installing {name} into {folder.relative_to(ROOT)}", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        for packages in PEERS[name]:
            _install(python, packages)
        (folder / ".ready").touch()
    return python


def installed(name: str) -> bool:
    """Whether the peer's environment is there."""
    return (ENVS / name / ".ready").exists()


def _install(python: Path, packages: Sequence[str]) -> None:
    command = [python, "-m", "pip", "install", "-q", *packages]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = errors[-1] if errors else "pip failed"
        raise CannotInstall(f"pip install {' '.join(packages)}: {reason}")


class PeerSuggester(Suggester):
    """A peer in its own process, which learns of each finished trial once, in order.

    Args:
        peer: its name in `PEERS`; with `-noisy` after it, configurations may run again.
    """

    def __init__(
        self, peer: str, space: Any, goals: Any, constraints: Any = (), *, seed: int = 0
    ) -> None:
        super().__init__(space, goals, constraints, seed=seed)
        single = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        package, _, self.noisy = peer.partition("-")
        command = [str(environment(package)), str(Path(__file__).parent / "serve.py"), peer]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None,
            text=True,
            env=single,
        )
        self.num_sent = 0
        self._send({"space": space.to_dict(), "goals": len(self.goals), "seed": seed})

    def suggest(
        self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1
    ) -> list[Any]:
        """Ask the peer; a proposal that is illegal is repaired, also if it was tried before.

        A noisy peer may propose what was tried before.
        """
        params = self._asked("ask", history)
        rng = np.random.default_rng([self.seed, len(history)])
        seen = set() if self.noisy else self.trial_keys(history, pending)
        found = repair(self.space, params, rng, seen)
        return [] if found is None else [found]

    def best(self, history: Sequence[Trial]) -> Params:
        """What a noisy peer recommends after these trials."""
        return self._asked("best", history)

    def _asked(self, method: str, history: Sequence[Trial]) -> Params:
        """Tell the peer what is new, and ask it by this method."""
        new = observations(history, self.goals, self.constraints)[self.num_sent :]
        rows = [
            {
                "params": dict(trial.params),
                "losses": list(item.losses),
                "failed": item.failed or any(violation > 0 for violation in item.violations),
            }
            for trial, item in zip(history[self.num_sent :], new, strict=True)
        ]
        self.num_sent = len(history)
        return self.space.complete(self._send({"tell": rows, "method": method})["params"])

    def _send(self, message: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the process of the peer has ended; its message is above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def cpu_seconds(self) -> float:
        """Processor time of the peer's process so far."""
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
