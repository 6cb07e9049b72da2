import automl
from automl import Choice, Float, Int, Space
from benchmarks.comparison.tasks import fit_features

SPACE = Space(
    Int("features", 16, 8192, log=True),
    Int("block", 16, 1024, log=True),
    Choice("dtype", ["float32", "float64"]),
    Float("gamma", 1e-2, 1e1, log=True),
    Float("ridge", 1e-6, 1e2, log=True),
)


def objective(trial):
    return {"error": fit_features(trial.params)}  # MemoryError becomes a failure of its kind


def search(seed, trials=30):
    result = automl.sweep(objective, SPACE, "minimize error", trials=trials, workers=1, seed=seed)
    return result.best.value, result.best.params
