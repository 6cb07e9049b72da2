import optuna

from benchmarks.comparison.tasks import fit_features


def objective(trial):
    return fit_features(
        {
            "features": trial.suggest_int("features", 16, 8192, log=True),
            "block": trial.suggest_int("block", 16, 1024, log=True),
            "dtype": trial.suggest_categorical("dtype", ["float32", "float64"]),
            "gamma": trial.suggest_float("gamma", 1e-2, 1e1, log=True),
            "ridge": trial.suggest_float("ridge", 1e-6, 1e2, log=True),
        }
    )


def search(seed, trials=30):
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(objective, n_trials=trials, catch=(MemoryError,))
    return study.best_value, study.best_params
