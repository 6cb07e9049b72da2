"""Synthetic problems: integers, categories, uneven scales, many dimensions, constraints."""

from __future__ import annotations

import itertools
import math

import numpy as np

from benchmarks.suggesters.problems.base import Params, Problem, problem
from search_spaces import Choice, Float, Int, Space


def ackley(x: np.ndarray) -> float:
    """Ackley's function with minimum 0 at 0 (Ackley, 1987)."""
    root = math.sqrt(float(np.mean(x**2)))
    return (
        -20 * math.exp(-0.2 * root)
        - math.exp(float(np.mean(np.cos(2 * math.pi * x))))
        + 20
        + math.e
    )


def _shuffled(count: int, seed: int) -> dict[str, float]:
    """Names of categories whose order says nothing about the values -1 to 1 behind them."""
    order = np.random.default_rng(seed).permutation(count)
    return {
        f"option_{chr(97 + i)}": float(np.linspace(-1, 1, count)[order[i]]) for i in range(count)
    }


def categorical_ackley(
    num_categorical: int, num_options: int, shifts: tuple[float, ...], name: str
) -> Problem:
    tables = [_shuffled(num_options, seed) for seed in range(num_categorical)]
    space = Space(
        *(Choice(f"kind_{i}", list(table)) for i, table in enumerate(tables)),
        *(Float(f"x_{i}", -1.0, 1.0) for i in range(len(shifts))),
    )

    def value(params: Params) -> float:
        chosen = [table[str(params[f"kind_{i}"])] for i, table in enumerate(tables)]
        moved = [float(params[f"x_{i}"]) - shift for i, shift in enumerate(shifts)]
        return ackley(np.array(chosen + moved))

    return problem(name, "synthetic", space, "minimize loss", value)


def _rotation(size: int, seed: int) -> np.ndarray:
    q, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))
    return np.asarray(q)


def integer_quadratic() -> Problem:
    """Five integers and two floats under one rotated, ill-conditioned bowl."""
    rotation = _rotation(7, 1)
    target = np.array([0.71, 0.32, 0.18, 0.83, 0.55, 0.64, 0.23])
    space = Space(
        *(Int(f"n_{i}", 0, high) for i, high in enumerate((9, 15, 20, 40, 100))),
        Float("a", 0.0, 1.0),
        Float("b", -5.0, 5.0),
    )
    highs = np.array([9, 15, 20, 40, 100])

    def value(params: Params) -> float:
        unit = [float(params[f"n_{i}"]) / highs[i] for i in range(5)]
        z = rotation @ (
            np.array([*unit, float(params["a"]), (float(params["b"]) + 5) / 10]) - target
        )
        return float(np.sum(np.array([1, 2, 4, 8, 16, 32, 64]) * z**2))

    return problem(
        "integer_quadratic", "synthetic", space, "minimize loss", value, tags="mixed-integer"
    )


def integer_rosenbrock() -> Problem:
    """A curved valley over integers, one of them on a logarithmic scale, and floats."""
    space = Space(
        Int("depth", -10, 10),
        Int("heads", -10, 10),
        Int("width", 8, 2048, log=True),
        Float("rate", -2.0, 2.0),
        Float("decay", -2.0, 2.0),
    )

    def value(params: Params) -> float:
        width = (math.log2(float(params["width"])) - 3) / 8 * 4 - 2
        x = [
            float(params["depth"]) / 5,
            float(params["heads"]) / 5,
            width,
            float(params["rate"]),
            float(params["decay"]),
        ]
        return math.log1p(
            sum(20 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in itertools.pairwise(x))
        )

    return problem(
        "integer_rosenbrock", "synthetic", space, "minimize loss", value, tags="mixed-integer"
    )


def integer_schedule() -> Problem:
    """Integers, flags and floats whose best values depend on each other."""
    space = Space(
        Int("warmup", 0, 60),
        Int("period", 1, 60),
        Int("batch", 1, 512, log=True),
        Choice("restart", [False, True]),
        Choice("shape", ["linear", "cosine", "step"]),
        Float("rate", 1e-4, 1.0, log=True),
    )
    best = {"linear": 0.3, "cosine": 0.0, "step": 0.5}

    def value(params: Params) -> float:
        batch = math.log2(float(params["batch"]))
        rate = math.log10(float(params["rate"])) + 2.2 - 0.15 * (batch - 4)
        warm = (float(params["warmup"]) - 3 * batch) / 15
        period = (float(params["period"]) - (37 if params["restart"] else 12)) / 20
        loss = (
            rate**2
            + 0.4 * warm**2
            + 0.5 * abs(period)
            + 0.06 * (batch - 5.5) ** 2
            + best[str(params["shape"])]
        )
        return loss - (0.25 if params["restart"] and params["shape"] == "cosine" else 0.0)

    return problem(
        "integer_schedule", "synthetic", space, "minimize loss", value, tags="mixed-integer"
    )


def uneven_scales() -> Problem:
    """Losses over six orders of magnitude: most of the space is hopeless."""
    space = Space(
        Float("rate", 1e-6, 10.0, log=True),
        Float("decay", 1e-8, 1.0, log=True),
        Float("x", -3.0, 3.0),
        Float("y", -3.0, 3.0),
        Int("k", 1, 12),
    )

    def value(params: Params) -> float:
        rate = math.log10(float(params["rate"]))
        decay = math.log10(float(params["decay"]))
        x = float(params["x"])
        y = float(params["y"])
        valley = 100 * (y - x * x / 2) ** 2 + (0.7 - x) ** 2
        return (
            0.01
            + valley
            + 10 ** (1.2 * abs(rate + 3.3))
            - 1
            + 0.3 * (decay - rate / 2 + 3) ** 2
            + 0.1 * (float(params["k"]) - 7) ** 2
        )

    return problem("uneven_scales", "synthetic", space, "minimize loss", value)


def sparse_twenty() -> Problem:
    """Twenty parameters of which six matter."""
    space = Space(
        *(Float(f"x_{i}", 0.0, 1.0) for i in range(12)),
        *(Int(f"n_{i}", 1, 16) for i in range(4)),
        *(Choice(f"flag_{i}", ["off", "on", "auto"]) for i in range(4)),
    )

    def value(params: Params) -> float:
        x = [float(params[f"x_{i}"]) for i in (2, 5, 9)]
        bowl = 3 * (x[0] - 0.2) ** 2 + 5 * (x[1] - x[0] - 0.5) ** 2 + 2 * (x[2] - 0.9) ** 2
        steps = 0.02 * (float(params["n_1"]) - 11) ** 2 + 0.01 * (float(params["n_3"]) - 4) ** 2
        return (
            bowl
            + steps
            + {"off": 0.4, "on": 0.0, "auto": 0.2}[str(params["flag_2"])]
            + 0.01 * float(params["x_0"])
        )

    return problem("sparse_twenty", "synthetic", space, "minimize loss", value)


def product_limit() -> Problem:
    """Degrees with a bounded product; at the optimum the constraint holds with equality."""
    space = Space(
        Int("data", 1, 16),
        Int("tensor", 1, 16),
        Int("stages", 1, 16),
        Float("share", 0.05, 0.95),
        Choice("order", ["a", "b", "c"]),
        constraints=["data * tensor * stages <= 64", "stages >= tensor - 4"],
    )

    def value(params: Params) -> float:
        data, tensor, stages = (float(params[name]) for name in ("data", "tensor", "stages"))
        gain = math.log(data) * 1.1 + math.log(tensor) * 1.4 + math.log(stages) * 0.9
        cost = (
            0.05 * (tensor - 4) ** 2
            + 0.03 * (stages - 3) ** 2
            + 8 * (float(params["share"]) - 1 / math.sqrt(tensor)) ** 2
        )
        return 6 - gain + cost + {"a": 0.5, "b": 0.0, "c": 0.2 * stages}[str(params["order"])]

    return problem("product_limit", "synthetic", space, "minimize seconds_per_step", value)


def problems() -> list[Problem]:
    return [
        categorical_ackley(5, 5, (0.31, -0.22, 0.13), "categorical_ackley"),
        categorical_ackley(3, 11, (-0.41, 0.27), "categorical_ackley_wide"),
        integer_quadratic(),
        integer_rosenbrock(),
        integer_schedule(),
        uneven_scales(),
        sparse_twenty(),
        product_limit(),
    ]
