"""Synthetic problems with noise and plateaus."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.suggesters.problems.base import Params, Problem, problem
from search_spaces import Choice, Float, Int, Space

_A = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def noisy_hartmann() -> Problem:
    """Hartmann's function of six floats (Dixon and Szego, 1978), minimum -3.32, noise of 0.2."""
    space = Space(*(Float(f"x_{i}", 0.0, 1.0) for i in range(6)))

    def value(params: Params) -> float:
        x = np.array([float(params[f"x_{i}"]) for i in range(6)])
        return float(-np.array([1.0, 1.2, 3.0, 3.2]) @ np.exp(-np.sum(_A * (x - _P) ** 2, axis=1)))

    return problem(
        "noisy_hartmann", "synthetic", space, "minimize loss", value, noise=0.2, tags="noisy"
    )


def noisy_mixed() -> Problem:
    """Mixed parameters with noise as large as the gain of the best tenth of the space."""
    space = Space(
        Float("rate", 1e-5, 1.0, log=True),
        Float("dropout", 0.0, 0.9),
        Int("layers", 1, 12),
        Choice("norm", ["pre", "post", "none"]),
        Choice("act", ["relu", "gelu", "swish", "tanh"]),
    )

    def value(params: Params) -> float:
        rate = math.log10(float(params["rate"])) + 2.5 + 0.1 * (float(params["layers"]) - 6)
        loss = (
            0.25 * rate**2
            + 1.2 * (float(params["dropout"]) - 0.25) ** 2
            + 0.02 * (float(params["layers"]) - 8) ** 2
        )
        loss += {"pre": 0.0, "post": 0.15 + 0.03 * float(params["layers"]), "none": 0.5}[
            str(params["norm"])
        ]
        return loss + {"relu": 0.08, "gelu": 0.0, "swish": 0.02, "tanh": 0.3}[str(params["act"])]

    return problem(
        "noisy_mixed", "synthetic", space, "minimize loss", value, noise=0.25, tags="noisy"
    )


def noisy_reward() -> Problem:
    """A reward on a curved ridge, with noise of a fifth of its range."""
    space = Space(
        Float("gamma", 0.8, 0.9999),
        Float("rate", 1e-6, 1e-1, log=True),
        Float("entropy", 1e-6, 1.0, log=True),
        Int("horizon", 8, 4096, log=True),
    )

    def value(params: Params) -> float:
        memory = -math.log10(1 - float(params["gamma"]))
        ridge = memory - 0.35 * math.log2(float(params["horizon"])) + 0.9
        rate = math.log10(float(params["rate"])) + 3.4
        entropy = math.log10(float(params["entropy"])) + 2.5
        return 500 * math.exp(
            -0.8 * ridge**2
            - 0.25 * rate**2
            - 0.08 * (entropy - 0.4 * rate) ** 2
            - 0.3 * (memory - 2.3) ** 2
        )

    return problem(
        "noisy_reward", "synthetic", space, "maximize reward", value, noise=100.0, tags="noisy"
    )


def plateaus_steps() -> Problem:
    """A staircase: the loss is constant over boxes."""
    space = Space(
        *(Float(f"x_{i}", -1.0, 1.0) for i in range(4)),
        Choice("mode", ["a", "b", "c"]),
        Int("n", 0, 30),
    )
    target = (0.43, -0.27, 0.61, -0.72)

    def value(params: Params) -> float:
        steps = sum(math.floor(6 * abs(float(params[f"x_{i}"]) - t)) for i, t in enumerate(target))
        return (
            steps + abs(int(params["n"]) // 4 - 5) + {"a": 2, "b": 0, "c": 1}[str(params["mode"])]
        )

    return problem("plateaus_steps", "synthetic", space, "minimize loss", value)


def plateaus_chance() -> Problem:
    """Accuracy at the level of chance, except in a twentieth of the space."""
    space = Space(
        Float("rate", 1e-7, 10.0, log=True),
        Float("scale", 1e-4, 1e2, log=True),
        Int("batch", 1, 4096, log=True),
        Choice("norm", [False, True]),
        Float("dropout", 0.0, 0.95),
    )

    def value(params: Params) -> float:
        rate = (
            math.log10(float(params["rate"])) - 0.25 * math.log2(float(params["batch"])) / 3 + 2.6
        )
        scale = math.log10(float(params["scale"])) + (0.3 if params["norm"] else 0.8)
        drop = float(params["dropout"]) - 0.15
        skill = 0.97 - 0.32 * rate**2 - (0.1 if params["norm"] else 0.5) * scale**2 - 0.9 * drop**2
        return max(0.1, skill)

    return problem("plateaus_chance", "synthetic", space, "maximize accuracy", value)


def problems() -> list[Problem]:
    return [noisy_hartmann(), noisy_mixed(), noisy_reward(), plateaus_steps(), plateaus_chance()]
