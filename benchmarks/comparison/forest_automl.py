import automl
from automl import Float, Int, Space
from benchmarks.comparison.tasks import grow_forest

SPACE = Space(
    Int("trees", 1, 64, log=True),
    Int("depth", 2, 16),
    Int("leaf", 1, 32, log=True),
    Float("features", 0.02, 1.0),
)


def objective(trial):
    return grow_forest(trial.params)


def search(seed, trials=30):
    result = automl.sweep(
        objective,
        SPACE,
        ["minimize error", "minimize nodes"],
        constraints="recall >= 0.6",
        trials=trials,
        workers=1,
        seed=seed,
    )
    return [(trial.metrics["error"], trial.metrics["nodes"]) for trial in result.pareto]
