"""Facts beside the value, for a look afterwards."""

import numpy as np
import optuna
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_validate


def objective(trial):
    x, y = load_breast_cancer(return_X_y=True)
    params = {
        "n_estimators": trial.suggest_int("n_estimators", 2, 20),
        "max_depth": trial.suggest_int("max_depth", 1, 16),
        "max_features": trial.suggest_float("max_features", 0.1, 1.0),
        "criterion": trial.suggest_categorical("criterion", ["gini", "entropy"]),
    }
    model = RandomForestClassifier(**params, random_state=0)
    scores = cross_validate(model, x, y, cv=3, scoring=("accuracy", "roc_auc"))
    trial.set_user_attr("accuracy", float(np.mean(scores["test_accuracy"])))
    trial.set_user_attr("params", params)
    return float(np.mean(scores["test_roc_auc"]))


if __name__ == "__main__":
    study = optuna.create_study(direction="maximize")
    study.optimize(objective, n_trials=25)
    print(study.best_trial.user_attrs)
