"""Several goals: the error of a model, the memory that fitting takes, and a limit on the time."""

from __future__ import annotations

import argparse
import time
import tracemalloc
from typing import Any

import numpy as np

import automl
from automl import Choice, Float, Int, Space

SPACE = Space(
    Int("features", 4, 1024, log=True, default=32),
    Choice("dtype", ["float32", "float64"], default="float64"),
    Float("width", 1e-2, 1e1, log=True, default=1.0, affects={"quality"}),
    Float("ridge", 1e-6, 1e2, log=True, default=1e-2, affects={"quality"}),
)


def fit(x: np.ndarray, y: np.ndarray, grid: np.ndarray, params: Any) -> np.ndarray:
    """Ridge regression on random features of x: what it predicts on the grid."""
    rng = np.random.default_rng(0)
    scale = rng.normal(size=(1, params["features"])) / params["width"]
    shift = rng.uniform(0, 2 * np.pi, params["features"])
    seen, unseen = (
        np.cos(part[:, None] @ scale + shift).astype(params["dtype"]) for part in (x, grid)
    )
    gram = seen.T @ seen + params["ridge"] * np.eye(seen.shape[1], dtype=params["dtype"])
    return unseen @ np.linalg.solve(gram, seen.T @ y)


def objective(trial: Any) -> dict[str, float]:
    """Fit noisy points of a wave; measure the error without noise, the peak of memory, seconds."""
    rng = np.random.default_rng(0)
    x, grid = rng.uniform(-3, 3, 400), np.linspace(-3, 3, 200)
    y = np.sin(3 * x) + 0.3 * rng.standard_normal(len(x))
    tracemalloc.start()
    begun = time.perf_counter()
    found = fit(x, y, grid, trial.params)
    seconds = time.perf_counter() - begun
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {
        "error": float(np.sqrt(np.mean((found - np.sin(3 * grid)) ** 2))),
        "megabytes": peak / 1e6,
        "fit_seconds": seconds,
    }


def main(trials: int = 30, dispatcher: str = "local") -> automl.Result:
    """Find the front: no configuration on it is beaten in both goals."""
    result = automl.sweep(
        objective,
        SPACE,
        ["minimize error", "minimize megabytes"],
        constraints="fit_seconds <= 1",
        trials=trials,
        workers=2,
        dispatcher=dispatcher,
        name="waves",
        resume=True,
    )
    for trial in sorted(result.pareto, key=lambda trial: trial.metrics["megabytes"]):
        print(f"{trial.metrics['megabytes']:6.2f} MB: error {trial.metrics['error']:.3f}")
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=30)
    main(parser.parse_args().trials)
