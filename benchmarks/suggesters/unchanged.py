"""The best value of objective files of Optuna, as they are: with automl, and with Optuna's TPE.

    python benchmarks/suggesters/unchanged.py --quick

The files are those of tests/automl/optuna_files. `declared` is automl with the space that random
trials have taught, given before the sweep.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import optuna

import automl
from automl.cli.objective import load_objective
from automl.control.preflight import usual_stopper
from search_spaces import Space

FOLDER = Path(__file__).parents[2] / "tests" / "automl" / "optuna_files"
MAXIMIZED = ("loops", "sklearn_branches", "torch_layers", "user_attrs")
CONDITIONAL = ("loops", "sklearn_branches", "torch_layers", "with_study", "xgboost_boosters")
OTHERS = ("closure", "dependent_ranges", "lightgbm_params", "raises_pruned", "sgd_pruning")


def swept(objective: Signed, trials: int, seed: int, space: Space | None, **options: Any) -> Any:
    """The result of a sweep for the least value."""
    stopper = usual_stopper(objective.objective, "minimize value")
    usual = {"dispatcher": "inline", "progress": False, "goals": "minimize value"}
    with tempfile.TemporaryDirectory() as store:
        return automl.sweep(
            objective,
            space,
            trials=trials,
            seed=seed,
            store=store,
            stopper=stopper,
            **usual | options,
        )


def best(who: str, objective: Signed, trials: int, seed: int, space: Space | None) -> float:
    """The least value after so many trials."""
    if who != "optuna":
        found = swept(objective, trials, seed, space if who == "declared" else None)
        return float(found.best.value)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(objective, n_trials=trials)
    return float(study.best_value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", nargs="+", default=[*CONDITIONAL, *OTHERS])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--who", nargs="+", default=["suggest", "declared", "optuna"])
    parser.add_argument("--quick", action="store_true", help="three files, two seeds, 15 trials")
    given = parser.parse_args()
    if given.quick:
        given.files, given.seeds, given.trials = given.files[:3], 2, 15
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    print(f"the least value of {given.trials} trials, mean and standard error, {given.seeds} seeds")
    for name in given.files:
        loaded: Any = load_objective(f"{FOLDER / name}.py:objective")
        sign = -1.0 if name in MAXIMIZED else 1.0
        objective = Signed(loaded, sign)
        learned = (
            swept(objective, 20, 0, None, suggester="random") if "declared" in given.who else 0
        )
        space = learned.snapshot.spec.space if learned else None
        row = [f"{name:18}"]
        for who in given.who:
            values = [best(who, objective, given.trials, s, space) for s in range(given.seeds)]
            error = np.std(values) / max(1, given.seeds - 1) ** 0.5
            row.append(f"{who} {np.mean(values):.5g} ± {error:.2g}")
        print("  ".join(row), flush=True)


class Signed:
    """An objective to be minimised."""

    def __init__(self, objective: Any, sign: float) -> None:
        self.objective, self._sign = objective, sign

    def __call__(self, trial: Any) -> float:
        if self._sign > 0:
            return float(self.objective(trial))
        return -float(self.objective(Flipped(trial)))


class Flipped:
    """A trial that reports the negative of each value."""

    def __init__(self, trial: Any) -> None:
        self._trial = trial

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trial, name)

    def report(self, value: float, step: int) -> None:
        self._trial.report(-value, step)


if __name__ == "__main__":
    main()
