"""XGBoost's rounds are reported, stopped between, and continued after a pause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import paused
import pytest

xgboost = pytest.importorskip("xgboost")

from automl.integrations.xgboost import XGBoostCallback  # noqa: E402

pytestmark = pytest.mark.usefixtures("frozen_heap")
random = np.random.default_rng(0)
X = random.normal(size=(200, 5))
Y = (X[:, 0] * X[:, 1] > 0).astype(int)
SPACE = {"eta": (0.05, 0.8), "max_depth": (1, 4)}
FIXED = {"objective": "binary:logistic", "eval_metric": "logloss", "nthread": 1}


class Log(xgboost.callback.TrainingCallback):  # type: ignore[misc]
    def __init__(self, trial: Any) -> None:
        super().__init__()
        self.trial = trial

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        paused.log(self.trial, model.num_boosted_rounds())
        return False


def train(params: Any, rounds: int, model: str | None = None, callbacks: Any = ()) -> Any:
    data = xgboost.DMatrix(X[:150], Y[:150])
    validation = xgboost.DMatrix(X[150:], Y[150:])
    return xgboost.train(
        FIXED | dict(params),
        data,
        rounds,
        evals=[(validation, "validation")],
        callbacks=callbacks,
        xgb_model=model,
        verbose_eval=False,
    )


def objective(trial: Any) -> None:
    callback = XGBoostCallback(trial)
    rounds = callback.rounds_left(paused.STEPS)
    train(trial.params, rounds, callback.model, [Log(trial), callback])


def test_a_paused_trial_goes_on_with_its_trees(tmp_path: Path) -> None:
    result = paused.sweep(objective, SPACE, "minimize validation-logloss", tmp_path)
    resumed = paused.check(result, tmp_path)
    whole = train(resumed.params, paused.STEPS)
    score = whole.eval(xgboost.DMatrix(X[150:], Y[150:]), "validation")
    expected = float(score.rpartition(":")[2])
    assert resumed.reports[-1].metrics["validation-logloss"] == pytest.approx(expected, abs=1e-6)
