from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch

from benchmarks.comparison.tasks import EPOCHS, train_network

SPACE = {
    "lr": tune.loguniform(1e-3, 1.0),
    "momentum": tune.uniform(0.0, 0.99),
    "width": tune.lograndint(4, 129),
    "depth": tune.randint(1, 5),
    "activation": tune.choice(["relu", "tanh"]),
}


def objective(config):
    for _, error in train_network(config):
        tune.report({"error": error})


def search(seed, trials=30):
    tuner = tune.Tuner(
        objective,
        param_space=SPACE,
        tune_config=tune.TuneConfig(
            metric="error",
            mode="min",
            search_alg=OptunaSearch(seed=seed),
            scheduler=ASHAScheduler(max_t=EPOCHS),
            num_samples=trials,
            max_concurrent_trials=1,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(verbose=0),
    )
    best = tuner.fit().get_best_result(scope="all")
    return best.metrics["error"], best.config
