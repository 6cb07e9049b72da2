"""A function that saves its state, so that a sweep can pause it and go on with the best."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import automl
from automl import Float, Space

SPACE = Space(
    Float("lr", 1e-3, 1.0, log=True, default=0.01),
    Float("momentum", 0.0, 0.99, default=0.5),
)
EPOCHS = 27


def objective(trial: Any) -> dict[str, float]:
    """Logistic regression by gradient descent, from where an earlier attempt has left it."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 20)) * np.linspace(0.1, 3.0, 20)
    y = x @ rng.normal(size=20) > 0
    state = trial.restore() or {"epoch": 0, "weights": np.zeros(20), "velocity": np.zeros(20)}
    weights, velocity = state["weights"], state["velocity"]
    loss = 1.0
    for epoch in range(state["epoch"] + 1, EPOCHS + 1):
        error = 1 / (1 + np.exp(-np.clip(x @ weights, -30, 30))) - y
        velocity = trial.params["momentum"] * velocity - trial.params["lr"] * x.T @ error / len(y)
        weights = weights + velocity
        margins = np.where(y, 1, -1) * (x @ weights)
        loss = float(np.logaddexp(0, -margins).mean())
        trial.save({"epoch": epoch, "weights": weights, "velocity": velocity})
        if not trial.report(step=epoch, loss=loss):
            break  # stopped for good, or paused: then this function is called again later
    return {"loss": loss}


def main(trials: int = 30, dispatcher: str = "local") -> automl.Result:
    """Tune it: asha pauses each trial early, and goes on with those that are worth it."""
    result = automl.sweep(
        objective,
        SPACE,
        "minimize loss",
        trials=trials,
        workers=2,
        dispatcher=dispatcher,
        stopper="asha",
        max_steps=EPOCHS,
        name="resumable",
        resume=True,
    )
    again = sum(trial.attempts > 1 for trial in result.trials)
    print(f"loss {result.best.value:.3f} with {result.best.params}; {again} trials went on")
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=30)
    main(parser.parse_args().trials)
