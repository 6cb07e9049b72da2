"""Training within a deadline on simulated devices: loss, seconds per step and peak memory are reported apart.

Every parameter says what it `affects`. The goal composes the metrics: the loss at the deadline follows from the loss by
steps and from how many steps fit.
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

QUALITY, SPEED, MEMORY = {"quality"}, {"speed"}, {"memory"}
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
    """A problem whose goal is a metric within so many seconds of training."""
    metric, within = goal.split()[1], float(goal.split()[-1].rstrip("s"))

    def clean(params: Params) -> Metrics:
        run = resolve(params)
        steps = report_steps(within, run.seconds)
        if not steps:
            raise TrialFailure("timeout")
        loss = sign * min(run.learning.loss(step) for step in steps)  # a goal takes the best report
        return {metric: loss, "step_seconds": run.seconds, "peak_memory_bytes": run.memory}

    def observe(params: Params, rng: np.random.Generator) -> Observation:
        return curve(resolve(params), within, rng, noise, metric=metric, sign=sign)

    return problem(name, "systems", space, goal, clean, tags=tags, observe=observe)


def number(params: Params, name: str, default: float = 0.0) -> float:
    return float(params.get(name, default))


def overflow(params: Params, rate: float, edge: float) -> None:
    """Half precision overflows at learning rates that the others bear."""
    if params["precision"] == "fp16" and rate > edge:
        raise TrialFailure("non_finite")
