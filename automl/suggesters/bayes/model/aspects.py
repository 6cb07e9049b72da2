"""Aspects: whether a metric or a failure measures quality, speed or memory.

A parameter says which aspects it `affects`, so a surrogate needs only the parameters of its metric.
"""

from __future__ import annotations

from typing import Final

from automl.core.goals import Goal
from search_spaces import Space

QUALITY: Final = frozenset({"quality"})
SPEED: Final = frozenset({"speed"})
MEMORY: Final = frozenset({"memory"})
ALL: Final = QUALITY | SPEED | MEMORY
# The aspects that cause a kind of failure; all aspects for other kinds.
FAILURES: Final = {"out_of_memory": MEMORY, "timeout": SPEED, "non_finite": QUALITY}
SPEED_WORDS: Final = ("second", "latency", "throughput", "step_time", "duration")


def of_metric(metric: str, within: bool = False) -> frozenset[str]:
    """The aspects of a metric, by its name.

    The time to a quality, such as `seconds_to_target`, depends on quality and speed.

    Args:
        within: whether the metric is measured at a deadline, so that quality depends on speed too.
    """
    if "memory" in metric or "bytes" in metric:
        return MEMORY
    if "time_to_" in metric or "seconds_to_" in metric:
        return QUALITY | SPEED
    if any(word in metric for word in SPEED_WORDS):
        return SPEED
    return QUALITY | SPEED if within else QUALITY


def of_goal(goal: Goal) -> frozenset[str]:
    """The aspects of a goal."""
    return of_metric(goal.metric, goal.within is not None)


def parameters(space: Space, aspects: frozenset[str]) -> tuple[str, ...]:
    """Names of the parameters that affect one of the aspects, and of their parents.

    All parameters if none affects them.
    """
    wanted = {name for name, p in space.parameters.items() if p.affects & aspects}
    for name in reversed(space.parameters):  # children before parents
        if name in wanted:
            wanted.update(space.parameters[name].when)
    return tuple(name for name in space.parameters if name in wanted) or tuple(space.parameters)
