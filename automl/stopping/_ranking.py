"""Ranks trials at the same progress by their loss vectors: dominance and non-dominated sorting."""

import math
from collections.abc import Sequence

from automl.core import Constraint, Goal, ReportPoint, Trial, ranking
from workers.protocol import Metrics

LossVector = tuple[float, ...]  # the constraint violation, then a loss per goal; smaller is better


def progress(point: ReportPoint, goals: Sequence[Goal]) -> float:
    """How far a trial is: its step, or its training seconds if a goal has a time limit."""
    return point.seconds if any(goal.within is not None for goal in goals) else float(point.step)


def best_losses(
    metrics: Sequence[Metrics], goals: Sequence[Goal], constraints: Sequence[Constraint]
) -> LossVector | None:
    """The best loss of each goal over some reports, and the newest constraint violation.

    Of a goal at the end, it is the newest loss.

    Returns:
        None if a goal has no finite value.
    """
    losses = [_least(metrics, goal) for goal in goals]
    if not metrics or not all(map(math.isfinite, losses)):
        return None
    latest = {name: value for item in metrics for name, value in item.items()}
    return (violation(latest, constraints), *losses)


def violation(metrics: Metrics, constraints: Sequence[Constraint]) -> float:
    """By how much metrics violate the constraints, summed; 0 for one whose metric is unknown."""
    return sum(
        (max(c.excess(metrics[c.metric]), 0.0) for c in constraints if c.metric in metrics), 0.0
    )


def losses_at(
    trial: Trial, least: float, goals: Sequence[Goal], constraints: Sequence[Constraint]
) -> LossVector | None:
    """The loss vector of a trial at its first report of progress `least` or more; None before."""
    for count, point in enumerate(trial.reports, start=1):
        if progress(point, goals) >= least:
            return best_losses([p.metrics for p in trial.reports[:count]], goals, constraints)
    return None


def _least(metrics: Sequence[Metrics], goal: Goal) -> float:
    losses = (goal.loss(item[goal.metric]) for item in metrics if goal.metric in item)
    found = [loss for loss in losses if math.isfinite(loss)]
    return min(found[-1:] if goal.at_end else found, default=math.inf)


def dominates(one: LossVector, other: LossVector) -> bool:
    """Whether `one` is better: a smaller violation or, if these are equal, Pareto dominance."""
    if one[0] != other[0]:
        return one[0] < other[0]
    return ranking.dominates(one, other)


def ranked(losses: Sequence[LossVector]) -> list[int]:
    """Indices from best to worst; several goals by non-dominated sorting.

    Within a front the smaller sum of ranks over the goals comes first, then the earlier index.
    Source: Deb et al., "NSGA-II", 2002.
    """
    if not losses or len(losses[0]) == 2:
        return sorted(range(len(losses)), key=lambda i: (losses[i], i))
    rank_sums = [0.0] * len(losses)
    for column in range(1, len(losses[0])):
        for rank, i in enumerate(sorted(range(len(losses)), key=lambda i: losses[i][column])):
            rank_sums[i] += rank
    order: list[int] = []
    left = sorted(range(len(losses)), key=lambda i: (rank_sums[i], i))
    while left:
        front = [i for i in left if not any(dominates(losses[j], losses[i]) for j in left)]
        order += front
        chosen = set(front)
        left = [i for i in left if i not in chosen]
    return order
