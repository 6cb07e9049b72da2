"""Rounds of LightGBM and XGBoost are reported, stopped between, and continued after a pause."""

from pathlib import Path
from typing import Any

import numpy as np
import paused
import pytest

lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")

from automl.integrations.lightgbm import LightGBMCallback  # noqa: E402
from automl.integrations.xgboost import XGBoostCallback  # noqa: E402

pytestmark = pytest.mark.usefixtures("frozen_heap")
random = np.random.default_rng(0)
X = random.normal(size=(200, 5))
Y = (X[:, 0] * X[:, 1] > 0).astype(int)
LIGHT = {"objective": "binary", "verbosity": -1, "num_threads": 1, "min_data_in_leaf": 5}
X_BOOST = {"objective": "binary:logistic", "eval_metric": "logloss", "nthread": 1}


class Log(xgboost.callback.TrainingCallback):  # type: ignore[misc]
    def __init__(self, trial: Any) -> None:
        super().__init__()
        self.trial = trial

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        paused.log(self.trial, model.num_boosted_rounds())
        return False


def light(params: Any, rounds: int, trial: Any = None, callback: Any = None) -> float:
    """Train with LightGBM; the loss at the end."""
    data, model, callbacks = lightgbm.Dataset(X[:150], Y[:150], free_raw_data=False), None, []
    if callback is not None:
        model = callback.model
        callbacks = [lambda env: paused.log(trial, env.iteration + 1), callback]
    valid = [data.create_valid(X[150:], Y[150:])]
    given = {"valid_sets": valid, "init_model": model, "callbacks": callbacks}
    found = lightgbm.train(LIGHT | dict(params), data, rounds, **given)
    return float(found.best_score["valid_0"]["binary_logloss"])


def xg_boost(params: Any, rounds: int, trial: Any = None, callback: Any = None) -> float:
    """Train with XGBoost; the loss at the end."""
    data, validation = xgboost.DMatrix(X[:150], Y[:150]), xgboost.DMatrix(X[150:], Y[150:])
    given: dict[str, Any] = {"evals": [(validation, "validation")], "verbose_eval": False}
    if callback is not None:
        given |= {"callbacks": [Log(trial), callback], "xgb_model": callback.model}
    found = xgboost.train(X_BOOST | dict(params), data, rounds, **given)
    return float(found.eval(validation, "validation").rpartition(":")[2])


@pytest.mark.parametrize(
    ("train", "kind", "space", "metric", "exact"),
    [
        (light, LightGBMCallback, {"learning_rate": (0.05, 0.8), "num_leaves": (2, 8)},
         "valid_0-binary_logloss", {"rel": 1e-3}),
        (xg_boost, XGBoostCallback, {"eta": (0.05, 0.8), "max_depth": (1, 4)},
         "validation-logloss", {"abs": 1e-6}),
    ],
)  # fmt: skip
def test_a_paused_trial_goes_on_with_its_trees(
    train: Any, kind: Any, space: Any, metric: str, exact: Any, tmp_path: Path
) -> None:
    def objective(trial: Any) -> None:
        callback = kind(trial)
        train(trial.params, callback.rounds_left(paused.STEPS), trial, callback)

    result = paused.sweep(objective, space, f"minimize {metric}", tmp_path)
    resumed = paused.check(result, tmp_path)
    expected = train(resumed.params, paused.STEPS)
    assert resumed.reports[-1].metrics[metric] == pytest.approx(expected, **exact)
