from ray import tune
from ray.tune.search.optuna import OptunaSearch

from benchmarks.comparison.tasks import classify_digits


def space(trial):
    trial.suggest_float("C", 1e-2, 1e3, log=True)
    trial.suggest_float("gamma", 1e-4, 1e1, log=True)
    if trial.suggest_categorical("kernel", ["rbf", "poly", "sigmoid"]) == "poly":
        trial.suggest_int("degree", 2, 5)
    trial.suggest_categorical("scaler", ["none", "standard", "minmax"])
    trial.suggest_int("directions", 8, 64)


def objective(config):
    return {"error": classify_digits(config)}


def search(seed, trials=30):
    tuner = tune.Tuner(
        objective,
        tune_config=tune.TuneConfig(
            search_alg=OptunaSearch(space=space, metric="error", mode="min", seed=seed),
            num_samples=trials,
            max_concurrent_trials=1,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(verbose=0),
    )
    best = tuner.fit().get_best_result("error", "min")
    return best.metrics["error"], best.config
