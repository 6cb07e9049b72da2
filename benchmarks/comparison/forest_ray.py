from ray import tune
from ray.tune.search.optuna import OptunaSearch

from benchmarks.comparison.tasks import grow_forest

SPACE = {
    "trees": tune.lograndint(1, 65),
    "depth": tune.randint(2, 17),
    "leaf": tune.lograndint(1, 33),
    "features": tune.uniform(0.02, 1.0),
}


def search(seed, trials=30):
    # OptunaSearch takes several goals but no constraint: the table is filtered afterwards.
    searcher = OptunaSearch(metric=["error", "nodes"], mode=["min", "min"], seed=seed)
    tuner = tune.Tuner(
        grow_forest,
        param_space=SPACE,
        tune_config=tune.TuneConfig(
            search_alg=searcher, num_samples=trials, max_concurrent_trials=1, reuse_actors=True
        ),
        run_config=tune.RunConfig(verbose=0),
    )
    table = tuner.fit().get_dataframe()
    kept = table[table["recall"] >= 0.6].sort_values(["error", "nodes"])
    front = kept[kept["nodes"] < kept["nodes"].cummin().shift(fill_value=float("inf"))]
    return list(zip(front["error"], front["nodes"], strict=True))
