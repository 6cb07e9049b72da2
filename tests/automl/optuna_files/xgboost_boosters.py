"""XGBoost with the parameters of its boosters, as a dictionary."""

import optuna
import sklearn.datasets
import sklearn.metrics
import xgboost as xgb
from sklearn.model_selection import train_test_split


def objective(trial):
    data, target = sklearn.datasets.load_breast_cancer(return_X_y=True)
    train_x, valid_x, train_y, valid_y = train_test_split(data, target, random_state=0)
    param = {
        "verbosity": 0,
        "nthread": 1,
        "objective": "binary:logistic",
        "booster": trial.suggest_categorical("booster", ["gbtree", "gblinear", "dart"]),
        "lambda": trial.suggest_float("lambda", 1e-8, 1.0, log=True),
        "alpha": trial.suggest_float("alpha", 1e-8, 1.0, log=True),
    }
    if param["booster"] in ["gbtree", "dart"]:
        param["max_depth"] = trial.suggest_int("max_depth", 3, 9, step=2)
        param["eta"] = trial.suggest_float("eta", 1e-8, 1.0, log=True)
        param["grow_policy"] = trial.suggest_categorical("grow_policy", ["depthwise", "lossguide"])
    if param["booster"] == "dart":
        param["rate_drop"] = trial.suggest_float("rate_drop", 1e-8, 1.0, log=True)
    bst = xgb.train(param, xgb.DMatrix(train_x, label=train_y), num_boost_round=10)
    return sklearn.metrics.log_loss(valid_y, bst.predict(xgb.DMatrix(valid_x)))


if __name__ == "__main__":
    study = optuna.create_study(direction="minimize")
    study.optimize(objective, n_trials=100, timeout=600)
    print(study.best_params)
