"""Several goals: the error of a polynomial fit, the number of its coefficients and their size."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import automl
from automl import Float, Int, Space

SPACE = Space(
    Int("degree", 1, 25, default=3),
    Float("ridge", 1e-8, 1e1, log=True, default=1e-3),
    Int("num_points", 20, 200, log=True, default=60),
)


def objective(trial: Any) -> dict[str, float]:
    """Fit noisy points of a wave, and measure the error where there is no noise."""
    p = trial.params
    rng = np.random.default_rng(trial.seed)
    x = rng.uniform(-1, 1, p["num_points"])
    y = np.sin(4 * x) + 0.1 * rng.standard_normal(len(x))
    powers = np.vander(x, p["degree"] + 1)
    weights = np.linalg.solve(
        powers.T @ powers + p["ridge"] * np.eye(powers.shape[1]), powers.T @ y
    )
    grid = np.linspace(-1, 1, 200)
    error = np.sqrt(np.mean((np.vander(grid, p["degree"] + 1) @ weights - np.sin(4 * grid)) ** 2))
    return {
        "error": float(error),
        "coefficients": p["degree"] + 1.0,
        "largest": float(np.abs(weights).max()),
    }


def main(trials: int = 40, dispatcher: str = "ray") -> automl.Result:
    """Find the front: no configuration on it is beaten in both goals."""
    result = automl.sweep(
        objective,
        SPACE,
        ["minimize error", "minimize coefficients"],
        constraints="largest <= 50",
        trials=trials,
        workers=2,
        dispatcher=dispatcher,
        name="polynomials",
        resume=True,
    )
    for trial in sorted(result.pareto, key=lambda trial: trial.metrics["coefficients"]):
        print(
            f"{trial.metrics['coefficients']:3.0f} coefficients: error {trial.metrics['error']:.3f}"
        )
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=40)
    main(parser.parse_args().trials)
