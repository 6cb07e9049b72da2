"""A range whose end is another value."""

import optuna
from sklearn.datasets import load_diabetes
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import ElasticNet
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler


def objective(trial):
    x, y = load_diabetes(return_X_y=True)
    n_columns = trial.suggest_int("n_columns", 2, 10)
    k = trial.suggest_int("k", 1, n_columns)
    alpha = trial.suggest_float("alpha", 1e-3, 1e2, log=True)
    l1_ratio = trial.suggest_float("l1_ratio", 0.0, 1.0, step=0.1)
    model = make_pipeline(
        StandardScaler(),
        PolynomialFeatures(2, include_bias=False),
        SelectKBest(k=k),
        ElasticNet(alpha=alpha, l1_ratio=l1_ratio, max_iter=300),
    )
    scores = cross_val_score(model, x[:, :n_columns], y, cv=3, scoring="neg_mean_squared_error")
    return -scores.mean()


if __name__ == "__main__":
    optuna.create_study().optimize(objective, n_trials=60)
