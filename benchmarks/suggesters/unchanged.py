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
from automl.cli.common import load_objective

FOLDER = Path(__file__).parents[2] / "tests" / "automl" / "optuna_files"
FILES = {  # whether the value is maximised
    "with_study": False,
    "xgboost_boosters": False,
    "sklearn_branches": True,
    "loops": True,
    "torch_layers": True,
    "closure": False,
    "dependent_ranges": False,
    "user_attrs": True,
    "lightgbm_params": False,
    "raises_pruned": False,
    "sgd_pruning": False,
}


def best(who: str, file: str, trials: int, seed: int) -> float:
    """The best value after so many trials."""
    objective: Any = load_objective(f"{FOLDER / file}.py:objective")
    direction = "maximize" if FILES[file] else "minimize"
    if who == "optuna":
        sampler = optuna.samplers.TPESampler(seed=seed)
        study = optuna.create_study(direction=direction, sampler=sampler)
        study.optimize(objective, n_trials=trials)
        return float(study.best_value)
    usual: Any = {"goals": f"{direction} value", "dispatcher": "inline", "progress": False}
    with tempfile.TemporaryDirectory() as store:
        space = None
        if who == "declared":
            random = automl.sweep(objective, trials=25, suggester="random", store=store, **usual)
            space = random.snapshot.spec.space
        found = automl.sweep(objective, space, trials=trials, seed=seed, store=store, **usual)
    return float(found.best.value)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", nargs="+", default=[*FILES], choices=FILES)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--who", nargs="+", default=["suggest", "declared", "optuna"])
    parser.add_argument("--quick", action="store_true", help="two files, two seeds, 15 trials")
    given = parser.parse_args()
    if given.quick:
        given.files, given.seeds, given.trials = given.files[:2], 2, 15
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    print(f"best of {given.trials} trials, mean of {given.seeds} seeds and its standard error")
    for file in given.files:
        row = f"{file:18}{'highest' if FILES[file] else 'lowest'} is best"
        for who in given.who:
            values = [best(who, file, given.trials, seed) for seed in range(given.seeds)]
            error = np.std(values) / max(1, given.seeds - 1) ** 0.5
            row += f"  {who} {np.mean(values):.5g} ± {error:.2g}"
        print(row, flush=True)


if __name__ == "__main__":
    main()
