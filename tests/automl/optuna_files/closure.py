"""An objective that a function makes around its data."""

import numpy as np
import optuna


def make_objective(x, y):
    def objective(trial):
        degree = trial.suggest_int("degree", 1, 12)
        ridge = trial.suggest_float("ridge", 1e-8, 1e1, log=True)
        train, valid = slice(0, None, 2), slice(1, None, 2)
        features = np.vander(x, degree + 1)
        a = features[train]
        weights = np.linalg.solve(a.T @ a + ridge * np.eye(degree + 1), a.T @ y[train])
        return float(np.mean((features[valid] @ weights - y[valid]) ** 2))

    return objective


rng = np.random.default_rng(0)
points = np.linspace(-1, 1, 60)
objective = make_objective(points, np.sin(4 * points) + 0.1 * rng.normal(size=60))

if __name__ == "__main__":
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(objective, n_trials=50)
