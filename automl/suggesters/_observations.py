"""What a finished trial tells a suggester that knows only losses and bounds: shared by the peers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from automl.core.goals import Constraint, Goal
from automl.core.ranking import value
from automl.core.trial import Trial

OVERFLOW = 1e100


@dataclass(frozen=True)
class Told:
    """One trial as a peer sees it.

    Args:
        losses: one a goal, smaller is better, finite; for a failed trial the worst seen of each.
        excesses: one a constraint, above 0 where it is broken; 1 for a failed trial or an unknown metric.
        failed: whether it ended without a usable result.
    """

    losses: tuple[float, ...]
    excesses: tuple[float, ...]
    failed: bool


def losses(trial: Trial, goals: Sequence[Goal]) -> tuple[float, ...] | None:
    """The loss of each goal, the best over the trial's reports; None where one is missing or not finite."""
    found = [value(trial, goal) for goal in goals]
    return (
        tuple(g.loss(v) for g, v in zip(goals, found, strict=True) if v is not None)
        if None not in found
        else None
    )


def tell(
    trials: Sequence[Trial], goals: Sequence[Goal], constraints: Sequence[Constraint]
) -> list[Told]:
    """Each trial as losses and excesses; a failure counts as the worst result seen, 0 where there is none.

    Values beyond 1e100 are divided by their largest magnitude, which changes no order.
    """
    found = [losses(trial, goals) for trial in trials]
    good = [item for item in found if item is not None]
    sizes = [max((abs(item[i]) for item in good), default=1.0) for i in range(len(goals))]
    factors = [size if size > OVERFLOW else 1.0 for size in sizes]
    worst = tuple(
        max((item[i] / factors[i] for item in good), default=0.0) for i in range(len(goals))
    )
    told = []
    for trial, item in zip(trials, found, strict=True):
        if item is None:
            told.append(Told(worst, (1.0,) * len(constraints), True))
        else:
            scaled = tuple(loss / factor for loss, factor in zip(item, factors, strict=True))
            told.append(Told(scaled, tuple(_excess(trial, c) for c in constraints), False))
    return told


def _excess(trial: Trial, constraint: Constraint) -> float:
    excess = constraint.excess(trial.metrics.get(constraint.metric, math.nan))
    return max(-OVERFLOW, min(OVERFLOW, excess)) if not math.isnan(excess) else 1.0
