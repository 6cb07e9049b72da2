"""Multi-fidelity searches of Syne Tune and SMAC on the virtual clock of `stoppers/curves.py`.

    PYTHON benchmarks/peers/curves_adapter.py METHOD TABLE SEED

Runs in the peer's environment and prints the trajectory: [[seconds, best loss so far], ...]. A
promoted trial continues from its last step; SMAC itself would start it again.
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
from collections.abc import Callable
from typing import Any, Protocol

from benchmarks.stoppers.curve_problems import NUM_WORKERS, Table

Trajectory = list[tuple[float, float]]


class MultiFidelityPeer(Protocol):
    """A search that also decides how long a trial runs."""

    def begin(self) -> tuple[Any, dict[str, float], int]:
        """A handle of the next trial, its parameters, and its last step."""

    def report(self, handle: Any, step: int, loss: float) -> bool:
        """Learn the loss at a step; whether the trial continues."""


class SyneTune:
    """A scheduler of Syne Tune (Salinas et al., AutoML 2022) that stops trials at rungs."""

    def __init__(self, table: Table, method: str, seed: int) -> None:
        import numpy as np
        from syne_tune.config_space import loguniform
        from syne_tune.optimizer import baselines

        np.random.seed(seed)
        kind = {"syne-ashabore": baselines.ASHABORE, "syne-bohb": baselines.BOHB}[method]
        self.space = {
            name: loguniform(float(axis[0]), float(axis[-1])) for name, axis in table.axes.items()
        }
        options: dict[str, Any] = {
            "metric": "loss",
            "time_attr": "step",
            "max_t": table.num_steps,
            "grace_period": 1,
        }
        self.scheduler = kind(self.space, reduction_factor=3, random_seed=seed, **options)
        self.num_steps = table.num_steps
        self.count = 0

    def begin(self) -> tuple[Any, dict[str, float], int]:
        from datetime import datetime

        from syne_tune.backend.trial_status import Trial

        config = self.scheduler.suggest().config
        trial = Trial(self.count, config, datetime.now())
        self.count += 1
        self.scheduler.on_trial_add(trial)
        return trial, config, self.num_steps

    def report(self, handle: Any, step: int, loss: float) -> bool:
        result = {"loss": loss, "step": step}
        if step < self.num_steps:
            return str(self.scheduler.on_trial_result(handle, result)) == "CONTINUE"
        self.scheduler.on_trial_complete(handle, result)
        return False


class SmacHyperband:
    """SMAC's multi-fidelity facade: a random forest and Hyperband (Lindauer et al., JMLR 2022)."""

    def __init__(self, table: Table, method: str, seed: int) -> None:
        import tempfile

        from ConfigSpace import ConfigurationSpace, Float
        from smac import MultiFidelityFacade, Scenario

        space = ConfigurationSpace(seed=seed)
        for name, axis in table.axes.items():
            space.add(Float(name, (float(axis[0]), float(axis[-1])), log=True))
        folder: Any = tempfile.mkdtemp()
        limits: dict[str, Any] = {
            "min_budget": 1,
            "max_budget": table.num_steps,
            "n_trials": 100_000,
        }
        scenario = Scenario(space, deterministic=True, seed=seed, output_directory=folder, **limits)
        self.facade = MultiFidelityFacade(scenario, _never, overwrite=True, logging_level=False)

    def begin(self) -> tuple[Any, dict[str, float], int]:
        info = self.facade.ask()
        params = {name: float(value) for name, value in dict(info.config).items()}
        return info, params, round(info.budget)

    def report(self, handle: Any, step: int, loss: float) -> bool:
        from smac.runhistory import TrialValue

        if step < round(handle.budget):
            return True
        self.facade.tell(handle, TrialValue(cost=loss, time=1.0))
        return False


def _never(config: Any, seed: int = 0, budget: float = 0.0) -> float:
    raise RuntimeError("SMAC is driven by ask and tell")


def run(table: Table, peer: MultiFidelityPeer) -> Trajectory:
    """The best loss so far over virtual seconds."""
    agenda: list[tuple[float, int, Any, Any, int, int]] = []
    reached: dict[str, int] = {}
    found: Trajectory = []

    def begin(now: float, slot: int) -> None:
        while True:
            handle, params, upto = peer.begin()
            step = reached.get(json.dumps(params, sort_keys=True), 0)
            if step < upto:
                break
            peer.report(handle, upto, float(min(table.curve(params)[:upto])))
        heapq.heappush(agenda, (now + table.rate(params), slot, handle, params, step, upto))

    for slot in range(NUM_WORKERS):
        begin(0.0, slot)
    while agenda[0][0] <= table.seconds:
        now, slot, handle, params, step, upto = heapq.heappop(agenda)
        curve = table.curve(params)
        step += 1
        reached[json.dumps(params, sort_keys=True)] = step
        loss = float(curve[step - 1])
        if not found or loss < found[-1][1]:
            found.append((now, loss))
        if peer.report(handle, step, float(min(curve[:step]))) and step < upto:
            heapq.heappush(agenda, (now + table.rate(params), slot, handle, params, step, upto))
        else:
            begin(now, slot)
    return found


METHODS: dict[str, Callable[..., MultiFidelityPeer]] = {
    "syne-ashabore": SyneTune,
    "syne-bohb": SyneTune,
    "smac-hyperband": SmacHyperband,
}


def main() -> None:
    """One run; the output of the peer itself goes to standard error."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("method", choices=list(METHODS))
    parser.add_argument("table")
    parser.add_argument("seed", type=int)
    given = parser.parse_args()
    out = sys.stdout
    sys.stdout = sys.stderr
    table = Table.load(given.table)
    json.dump(run(table, METHODS[given.method](table, given.method, given.seed)), out)


if __name__ == "__main__":
    main()
