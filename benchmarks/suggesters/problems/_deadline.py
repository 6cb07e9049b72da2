"""Training within a deadline on simulated devices.

Loss, seconds of a step and peak memory are reported apart, and every parameter declares what it
`affects`. The loss at the deadline follows from the loss by steps and the number of steps.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.suggesters.problems._simulator import (
    Device,
    Noise,
    Simulated,
    curve,
    report_steps,
)
from benchmarks.suggesters.problems.base import (
    Metrics,
    Observation,
    Params,
    Problem,
    problem,
)
from search_spaces import Space
from search_spaces.errors import TrialFailure

QUALITY = {"quality"}
SPEED = {"speed"}
MEMORY = {"memory"}
COSTS = {"speed", "memory"}
GPU_12 = Device(
    12e9, {"fp32": 18e12, "tf32": 35e12, "bf16": 70e12, "fp16": 75e12}, half_rate_tokens=8000
)
GPU_16 = Device(16e9, {"tf32": 60e12, "bf16": 120e12}, bandwidth=50e9, half_rate_tokens=4000)
GPU_80 = Device(
    80e9, {"fp32": 19e12, "tf32": 120e12, "bf16": 250e12, "fp16": 250e12}, bandwidth=200e9
)
DEFAULT_NOISE = Noise()
Resolve = Callable[[Params], Simulated]


def deadline(
    name: str,
    space: Space,
    goal: str,
    resolve: Resolve,
    *,
    noise: Noise = DEFAULT_NOISE,
    sign: float = 1.0,
    tags: str = "apart",
) -> Problem:
    """A problem whose goal is a metric within some seconds of training."""
    metric = goal.split()[1]
    within = float(goal.split()[-1].rstrip("s"))

    def clean(params: Params) -> Metrics:
        run = resolve(params)
        steps = report_steps(within, run.seconds)
        if not steps:
            raise TrialFailure("timeout")
        loss = sign * min(run.learning.loss(step) for step in steps)  # the best report counts
        return {metric: loss, "step_seconds": run.seconds, "peak_memory_bytes": run.memory}

    def observe(params: Params, rng: np.random.Generator) -> Observation:
        return curve(resolve(params), within, rng, noise, metric=metric, sign=sign)

    return problem(name, "systems", space, goal, clean, tags=tags, observe=observe)


def number(params: Params, name: str, default: float = 0.0) -> float:
    return float(params.get(name, default))


def overflow(params: Params, rate: float, edge: float) -> None:
    """Fail if half precision overflows at a learning rate."""
    if params["precision"] == "fp16" and rate > edge:
        raise TrialFailure("non_finite")
