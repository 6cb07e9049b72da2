"""Configurations that cannot be computed are pruned."""

import numpy as np
import optuna


def objective(trial):
    lengthscale = trial.suggest_float("lengthscale", 1e-2, 1e1, log=True)
    noise = trial.suggest_float("noise", 1e-12, 1e0, log=True)
    x = np.linspace(0, 3, 80)
    y = np.sin(3 * x) + 0.2 * np.cos(17 * x)
    kernel = np.exp(-((x[:, None] - x) ** 2) / (2 * lengthscale**2)) + noise * np.eye(80)
    try:
        chol = np.linalg.cholesky(kernel)
    except np.linalg.LinAlgError:
        raise optuna.TrialPruned()  # noqa: B904
    alpha = np.linalg.solve(kernel, y)
    return float(0.5 * y @ alpha + np.log(np.diag(chol)).sum())


if __name__ == "__main__":
    study = optuna.create_study()
    study.optimize(objective, n_trials=50, catch=(ValueError,))
