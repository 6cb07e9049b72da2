import automl
from automl import Choice, Float, Int, Space
from benchmarks.comparison.tasks import classify_digits

SPACE = Space(
    Float("C", 1e-2, 1e3, log=True),
    Float("gamma", 1e-4, 1e1, log=True),
    Choice("kernel", ["rbf", "poly", "sigmoid"]),
    Int("degree", 2, 5, when={"kernel": "poly"}),
    Choice("scaler", ["none", "standard", "minmax"]),
    Int("directions", 8, 64),
)


def objective(trial):
    return {"error": classify_digits(trial.params)}


def search(seed, trials=30):
    result = automl.sweep(objective, SPACE, "minimize error", trials=trials, workers=1, seed=seed)
    return result.best.value, result.best.params
