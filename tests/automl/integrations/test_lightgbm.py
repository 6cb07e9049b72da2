"""LightGBM's rounds are reported, stopped between, and continued after a pause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import paused
import pytest

lightgbm = pytest.importorskip("lightgbm")

from automl.integrations.lightgbm import LightGBMCallback  # noqa: E402

pytestmark = pytest.mark.usefixtures("frozen_heap")
random = np.random.default_rng(0)
X = random.normal(size=(200, 5))
Y = (X[:, 0] * X[:, 1] > 0).astype(int)
SPACE = {"learning_rate": (0.05, 0.8), "num_leaves": (2, 8)}
FIXED = {"objective": "binary", "verbosity": -1, "num_threads": 1, "min_data_in_leaf": 5}


def train(params: Any, rounds: int, model: str | None = None, callbacks: Any = None) -> Any:
    data = lightgbm.Dataset(X[:150], Y[:150], free_raw_data=False)
    return lightgbm.train(
        FIXED | dict(params),
        data,
        rounds,
        valid_sets=[data.create_valid(X[150:], Y[150:])],
        init_model=model,
        callbacks=callbacks,
    )


def objective(trial: Any) -> None:
    def log(env: Any) -> None:
        paused.log(trial, env.iteration + 1)

    callback = LightGBMCallback(trial)
    rounds = callback.rounds_left(paused.STEPS)
    train(trial.params, rounds, callback.model, [log, callback])


def test_a_paused_trial_goes_on_with_its_trees(tmp_path: Path) -> None:
    result = paused.sweep(objective, SPACE, "minimize valid_0-binary_logloss", tmp_path)
    resumed = paused.check(result, tmp_path)
    whole = train(resumed.params, paused.STEPS)
    expected = whole.best_score["valid_0"]["binary_logloss"]
    found = resumed.reports[-1].metrics["valid_0-binary_logloss"]
    assert found == pytest.approx(expected, rel=1e-3)


def test_cross_validation_and_estimators_report(tmp_path: Path) -> None:
    def cross_validated(trial: Any) -> None:
        callback = LightGBMCallback(trial, every=4)
        params = FIXED | dict(trial.params)
        lightgbm.cv(params, lightgbm.Dataset(X, Y), 6, nfold=2, callbacks=[callback])

    goal = "minimize valid-binary_logloss"
    result = paused.sweep(cross_validated, SPACE, goal, tmp_path, trials=1, stopper="none")
    assert [point.step for point in result.trials[0].reports] == [4, 6]

    def estimator(trial: Any) -> None:
        callback = LightGBMCallback(trial, save_every=2)
        model = lightgbm.LGBMClassifier(n_estimators=5, verbosity=-1, **trial.params)
        model.fit(X, Y, eval_X=X, eval_y=Y, callbacks=[callback])
        assert [path.name for path in trial.checkpoint_dir.iterdir()] == ["step-4.txt"]

    goal = "minimize valid_0-binary_logloss"
    result = paused.sweep(estimator, SPACE, goal, tmp_path, trials=1, stopper="none")
    assert [t.message for t in result.trials if t.failure] == []
    assert len(result.trials[0].reports) == 5
