import optuna

from benchmarks.comparison.tasks import classify_digits


def objective(trial):
    params = {
        "C": trial.suggest_float("C", 1e-2, 1e3, log=True),
        "gamma": trial.suggest_float("gamma", 1e-4, 1e1, log=True),
        "kernel": trial.suggest_categorical("kernel", ["rbf", "poly", "sigmoid"]),
        "scaler": trial.suggest_categorical("scaler", ["none", "standard", "minmax"]),
        "directions": trial.suggest_int("directions", 8, 64),
    }
    if params["kernel"] == "poly":
        params["degree"] = trial.suggest_int("degree", 2, 5)
    return classify_digits(params)


def search(seed, trials=30):
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(objective, n_trials=trials)
    return study.best_value, study.best_params
