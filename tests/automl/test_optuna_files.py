"""Objective files as users of Optuna write them run as they are, under both tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import automl
from automl.cli.program import load_objective
from automl.core import TrialState
from automl.sweeps import Objective

optuna = pytest.importorskip("optuna")
FOLDER = Path(__file__).parent / "optuna_files"
GOALS: dict[str, str | list[str]] = {
    "closure": "minimize value",
    "dependent_ranges": "minimize value",
    "lightgbm_params": "minimize value",
    "loops": "maximize value",
    "raises_pruned": "minimize value",
    "sgd_pruning": "minimize value",
    "sklearn_branches": "maximize value",
    "torch_layers": "maximize value",
    "two_directions": ["minimize error", "minimize size"],
    "user_attrs": "maximize value",
    "with_study": "minimize value",
    "xgboost_boosters": "minimize value",
}


def objective_of(name: str) -> Objective:
    """The objective of a file, for its packages."""
    for package in ("sklearn", "torch", "xgboost", "lightgbm"):
        if package in (FOLDER / f"{name}.py").read_text():
            pytest.importorskip(package)
    found = load_objective(f"{FOLDER / name}.py:objective")
    assert found is not None
    return found


def test_each_file_is_tried() -> None:
    assert sorted(GOALS) == sorted(path.stem for path in FOLDER.glob("*.py"))


@pytest.mark.parametrize("name", GOALS)
def test_a_file_runs_as_it_is(tmp_path: Path, name: str) -> None:
    objective, goals = objective_of(name), GOALS[name]
    options: dict[str, Any] = {"dispatcher": "inline", "progress": False, "store": tmp_path}
    result = automl.sweep(objective, trials=6, goals=goals, suggester="random", **options)
    failed = [t for t in result.trials if t.state is TrialState.FAILED]
    assert {t.exception for t in failed} <= {"TrialPruned"}, failed
    assert len(result.trials) == 6
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    listed = [goals] if isinstance(goals, str) else goals
    sampler = optuna.samplers.RandomSampler(seed=0)
    study = optuna.create_study(directions=[goal.split()[0] for goal in listed], sampler=sampler)
    study.optimize(objective, n_trials=2)
    ours = {key for trial in result.trials for key in trial.params}
    assert {key for trial in study.trials for key in trial.params} <= ours
