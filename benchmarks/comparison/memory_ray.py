from ray import tune
from ray.tune.search.optuna import OptunaSearch

from benchmarks.comparison.tasks import fit_features

SPACE = {
    "features": tune.lograndint(16, 8193),
    "block": tune.lograndint(16, 1025),
    "dtype": tune.choice(["float32", "float64"]),
    "gamma": tune.loguniform(1e-2, 1e1),
    "ridge": tune.loguniform(1e-6, 1e2),
}


def objective(config):
    return {"error": fit_features(config)}


def search(seed, trials=30):
    tuner = tune.Tuner(
        objective,
        param_space=SPACE,
        tune_config=tune.TuneConfig(
            metric="error",
            mode="min",
            search_alg=OptunaSearch(seed=seed),
            num_samples=trials,
            max_concurrent_trials=1,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(verbose=0),
    )
    best = tuner.fit().get_best_result()
    return best.metrics["error"], best.config
