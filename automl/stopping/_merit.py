"""How good a trial is beside others at the same step: one number for several goals and constraints."""

from __future__ import annotations

import math
from collections.abc import Sequence

from automl.core.goals import Constraint, Goal
from automl.core.ranking import dominates
from automl.core.trial import ReportPoint, Trial
from workers.protocol import Metrics

Merit = tuple[float, ...]  # excess over the constraints, then a loss a goal; smaller is better


def progress(point: ReportPoint, goals: Sequence[Goal]) -> float:
    """How far a trial is: its step, or its training seconds where a goal is to be reached within a time."""
    return point.seconds if any(goal.within is not None for goal in goals) else float(point.step)


def merit(
    metrics: Sequence[Metrics], goals: Sequence[Goal], constraints: Sequence[Constraint]
) -> Merit | None:
    """The best that was reported: feasible before infeasible; None where a goal has no finite value.

    With several goals each is the best of its own.
    """
    losses = [_least(metrics, goal) for goal in goals]
    if not metrics or not all(map(math.isfinite, losses)):
        return None
    latest: dict[str, float] = {}
    for item in metrics:
        latest.update(item)
    excess = [max(c.excess(latest[c.metric]), 0.0) for c in constraints if c.metric in latest]
    return (sum(excess, 0.0), *losses)


def merit_at(
    trial: Trial, least: float, goals: Sequence[Goal], constraints: Sequence[Constraint]
) -> Merit | None:
    """The trial's merit when its progress had just reached `least`; None where it has not."""
    metrics = []
    for point in trial.reports:
        metrics.append(point.metrics)
        if progress(point, goals) >= least:
            return merit(metrics, goals, constraints)
    return None


def _least(metrics: Sequence[Metrics], goal: Goal) -> float:
    found = (goal.loss(item[goal.metric]) for item in metrics if goal.metric in item)
    return min((loss for loss in found if math.isfinite(loss)), default=math.inf)


def _precedes(one: Merit, other: Merit) -> bool:
    """Whether `one` is closer to feasible or, if both are equally close, dominates `other`."""
    return one[0] < other[0] if one[0] != other[0] else dominates(one[1:], other[1:])


def ranked(merits: Sequence[Merit]) -> list[int]:
    """Indices from best to worst; several goals by non-dominated sorting (Deb et al., "NSGA-II", 2002).

    Ties within a front go to the least sum of ranks over the goals, then to the earlier.
    """
    if not merits or len(merits[0]) == 2:
        return sorted(range(len(merits)), key=lambda i: (merits[i], i))
    places = [0.0] * len(merits)
    for column in range(1, len(merits[0])):
        for place, i in enumerate(sorted(range(len(merits)), key=lambda i: merits[i][column])):
            places[i] += place
    order: list[int] = []
    left = sorted(range(len(merits)), key=lambda i: (places[i], i))
    while left:
        front = [i for i in left if not any(_precedes(merits[j], merits[i]) for j in left)]
        order += front
        chosen = set(front)
        left = [i for i in left if i not in chosen]
    return order
