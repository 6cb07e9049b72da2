import optuna

from benchmarks.comparison.tasks import grow_forest


def objective(trial):
    measured = grow_forest(
        {
            "trees": trial.suggest_int("trees", 1, 64, log=True),
            "depth": trial.suggest_int("depth", 2, 16),
            "leaf": trial.suggest_int("leaf", 1, 32, log=True),
            "features": trial.suggest_float("features", 0.02, 1.0),
        }
    )
    trial.set_constraint("recall", 0.6 - measured["recall"])
    return measured["error"], measured["nodes"]


def search(seed, trials=30):
    study = optuna.create_study(
        directions=["minimize", "minimize"], sampler=optuna.samplers.TPESampler(seed=seed)
    )
    study.optimize(objective, n_trials=trials)
    return [tuple(trial.values) for trial in study.best_trials]
