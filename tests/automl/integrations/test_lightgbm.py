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
