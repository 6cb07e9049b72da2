import automl
from automl import Choice, Float, Int, Space
from benchmarks.comparison.tasks import EPOCHS, train_network

SPACE = Space(
    Float("lr", 1e-3, 1.0, log=True),
    Float("momentum", 0.0, 0.99),
    Int("width", 4, 128, log=True),
    Int("depth", 1, 4),
    Choice("activation", ["relu", "tanh"]),
)


def objective(trial):
    for epoch, error in train_network(trial.params):
        if not trial.report(step=epoch, error=error):
            break


def search(seed, trials=30):
    result = automl.sweep(
        objective,
        SPACE,
        "minimize error",
        trials=trials,
        workers=1,
        seed=seed,
        stopper="asha",
        max_steps=EPOCHS,
    )
    return result.best.value, result.best.params
