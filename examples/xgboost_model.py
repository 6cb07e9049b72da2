"""XGBoost: each round is reported, and boosting ends early for what is behind."""

from __future__ import annotations

import argparse
from typing import Any

import xgboost
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

import automl
from automl import Float, Int, Space
from automl.integrations.xgboost import XGBoostCallback

ROUNDS = 60
SPACE = Space(
    Float("eta", 0.01, 0.8, log=True, default=0.3, affects={"quality"}),
    Int("max_depth", 1, 8, default=6),
    Float("subsample", 0.4, 1.0, default=1.0),
    Float("lambda", 1e-2, 1e2, log=True, default=1.0, affects={"quality"}),
)


def objective(trial: Any) -> None:
    """The goal is a metric that XGBoost evaluates: DATA-METRIC."""
    features, labels = load_breast_cancer(return_X_y=True)
    x, x_valid, y, y_valid = train_test_split(features, labels, random_state=0)
    callback = XGBoostCallback(trial)
    xgboost.train(
        {
            "objective": "binary:logistic",
            "eval_metric": "logloss",
            "nthread": 1,
            "seed": trial.seed % 2**31,
            **trial.params,
        },
        xgboost.DMatrix(x, y),
        callback.rounds_left(ROUNDS),
        evals=[(xgboost.DMatrix(x_valid, y_valid), "valid")],
        callbacks=[callback],
        xgb_model=callback.model,
        verbose_eval=False,
    )


def main(trials: int = 20, dispatcher: str = "local") -> automl.Result:
    """Tune it; a paused trial goes on with the trees that it has."""
    result = automl.sweep(
        objective,
        SPACE,
        "minimize valid-logloss",
        trials=trials,
        workers=2,
        dispatcher=dispatcher,
        stopper="asha",
        max_steps=ROUNDS,
        name="xgboost",
        resume=True,
    )
    print(f"log loss {result.best.value:.4f} with {result.best.params}")
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    main(parser.parse_args().trials)
