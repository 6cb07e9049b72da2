"""Ranks trials at the same progress by their loss vectors: dominance and non-dominated sorting."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from automl.core import Constraint, Goal, ReportPoint, Trial, ranking
from automl.core.trial import WIDTH, CurvePoint

Array = NDArray[np.float64]
LossVector = tuple[float, ...]  # the constraint violation, then a loss per goal; smaller is better


def progress(point: ReportPoint, goals: Sequence[Goal]) -> float:
    """How far a trial is: its step, or its training seconds if a goal has a time limit."""
    return point.seconds if any(goal.within is not None for goal in goals) else float(point.step)


class TrialCurves:
    """The learning curves of a trial's goals, as far as it has reported.

    Args:
        constraints: whose violation is the first number of a loss vector.

    Attributes:
        count: number of reports; their places are 0 to `count - 1`.
    """

    def __init__(
        self, trial: Trial, goals: Sequence[Goal], constraints: Sequence[Constraint] = ()
    ) -> None:
        self._curves = tuple(trial.reports.curve(goal, constraints) for goal in goals)
        self._timed = any(goal.within is not None for goal in goals)
        self.count = len(trial.reports)

    @cached_property
    def begin(self) -> int:
        """The place of the first report with progress and a value of every goal; else `count`."""
        return bisect_left(
            range(self.count),
            True,
            key=lambda place: self.at(place) > 0 and all(map(math.isfinite, self.best(place))),
        )

    def at(self, place: int) -> float:
        """The progress at a report; it never falls."""
        return self._curves[0][place][self._timed]

    def first(self, least: float) -> int:
        """The place of the first report of progress `least` or more; `count` if there is none."""
        return self._curves[0].first(self.count, least, timed=self._timed)

    def best(self, place: int) -> tuple[float, ...]:
        """The best loss of each goal so far at a report; infinite before its first value."""
        return tuple(curve[place].best for curve in self._curves)

    def newest(self) -> tuple[Array, Array]:
        """Progress (`n`) and newest losses (`n x g`) at the reports from `begin` on."""
        tables = [np.array(c.table(self.count)).reshape(-1, WIDTH).T for c in self._curves]
        newest = np.array([CurvePoint(*table).newest for table in tables])
        return tables[0][int(self._timed), self.begin :], newest[:, self.begin :].T

    def losses(self, place: int) -> LossVector | None:
        """The loss vector at a report; None if a goal has no value yet."""
        best = self.best(place)
        known = all(map(math.isfinite, best))
        return (self._curves[0][place].excess, *best) if known else None

    def losses_at(self, least: float) -> LossVector | None:
        """The loss vector at the first report of progress `least` or more; None before."""
        place = self.first(least)
        return self.losses(place) if place < self.count else None


def dominates(one: LossVector, other: LossVector) -> bool:
    """Whether `one` is better: a smaller violation or, if these are equal, Pareto dominance."""
    return one[0] < other[0] or (one[0] == other[0] and ranking.dominates(one, other))


def ranked(losses: Sequence[LossVector]) -> list[int]:
    """Indices from best to worst; several goals by non-dominated sorting.

    Within a front the smaller sum of ranks over the goals comes first, then the earlier index.
    Source: Deb et al., "NSGA-II", 2002.
    """
    if not losses or len(losses[0]) == 2:
        return sorted(range(len(losses)), key=lambda i: (losses[i], i))
    ranks = np.array(losses)[:, 1:].argsort(0, kind="stable").argsort(0, kind="stable")
    rank_sums = ranks.sum(1).tolist()
    order: list[int] = []
    left = sorted(range(len(losses)), key=lambda i: (rank_sums[i], i))
    while left:
        front = [i for i in left if not any(dominates(losses[j], losses[i]) for j in left)]
        order += front
        chosen = set(front)
        left = [i for i in left if i not in chosen]
    return order
