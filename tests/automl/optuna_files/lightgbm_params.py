"""LightGBM on a data set of scikit-learn."""

import lightgbm as lgb
import optuna
import sklearn.datasets
import sklearn.metrics
from sklearn.model_selection import train_test_split


def objective(trial):
    data, target = sklearn.datasets.load_breast_cancer(return_X_y=True)
    train_x, valid_x, train_y, valid_y = train_test_split(data, target, random_state=0)
    param = {
        "objective": "binary",
        "verbosity": -1,
        "num_threads": 1,
        "lambda_l1": trial.suggest_float("lambda_l1", 1e-8, 10.0, log=True),
        "lambda_l2": trial.suggest_float("lambda_l2", 1e-8, 10.0, log=True),
        "num_leaves": trial.suggest_int("num_leaves", 2, 256),
        "feature_fraction": trial.suggest_float("feature_fraction", 0.4, 1.0),
        "bagging_fraction": trial.suggest_float("bagging_fraction", 0.4, 1.0),
        "bagging_freq": trial.suggest_int("bagging_freq", 1, 7),
        "min_child_samples": trial.suggest_int("min_child_samples", 5, 100),
    }
    gbm = lgb.train(param, lgb.Dataset(train_x, label=train_y), num_boost_round=20)
    return sklearn.metrics.log_loss(valid_y, gbm.predict(valid_x))


if __name__ == "__main__":
    optuna.create_study().optimize(objective, n_trials=100)
