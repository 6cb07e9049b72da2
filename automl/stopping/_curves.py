"""Learning curves: losses at the same progress, who is ahead there, and when that means something.

The warm-up is the progress before which reports do not predict how a trial ends.
"""

import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from automl.core import Constraint, Goal, ReportPoint, Trial, TrialState, ranking
from automl.core.trial import WIDTH, CurvePoint

MIN_PACE: Final = 0.75  # of an even pace; trial 0 improves more slowly than that during the warm-up
PRIOR_TRIALS: Final = 5.0  # trial 0 counts as much as this many completed trials
MIN_CORRELATION: Final = 0.3  # with the final ranking, for reports to count
MAX_TRIALS: Final = 60  # completed ones that are compared, the newest
REFIT_GROWTH: Final = 1.1  # the warm-up is learned again if the data has grown by this factor
NUM_POINTS: Final = 24  # candidates for the end, evenly spaced in the logarithm of progress
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


class WarmUp:
    """Learns from trial 0, and from completed trials, when reports start to predict the end.

    Validation BLEU is near 0 for a part of the training, and a loss may rise before it falls. Who
    leads during that time need not lead at the end. The warm-up is over if the best values so far
    have a Spearman rank correlation of at least `MIN_CORRELATION` with the final ones. The
    correlation is averaged with a prior of the weight of `PRIOR_TRIALS` trials: 0 before trial 0
    began to improve, 1 after that.

    Args:
        goals: of the sweep.
        end: if given, the user's own value, and nothing is learned.

    Attributes:
        end: progress from which on reports count; infinite until that is known.
    """

    def __init__(self, goals: Sequence[Goal], end: float | None = None) -> None:
        self._goals = tuple(goals)
        self._learns = end is None
        self._ended: deque[tuple[Array, Array]] = deque(maxlen=MAX_TRIALS)
        self._seen: set[int] = set()
        self._next_trials = 1  # learn again at this many completed trials
        self._next_reports = 0  # or at this many reports of trial 0
        self._onset = 0.0
        self.end = 0.0 if end is None else end * (1 - 1e-9)

    def observe(self, trial: Trial) -> None:
        """Take in a trial that is new or has changed."""
        ended = trial.state is TrialState.COMPLETED and trial.number not in self._seen
        first = trial.number == 0 and (
            ended or trial.state.finished or len(trial.reports) >= self._next_reports
        )
        if not self._learns or not (first or ended):
            return
        ats, losses = TrialCurves(trial, self._goals).newest()
        if first:
            self._next_reports = math.ceil(len(trial.reports) * REFIT_GROWTH + 1e-9)
            self._onset = _onset(ats, losses, trial.state.finished)
        if ended:
            self._seen.add(trial.number)
            if len(ats) > 1:
                self._ended.append((ats, np.minimum.accumulate(losses, 0)))
        if first or len(self._seen) >= self._next_trials:
            self._next_trials = math.ceil(len(self._seen) * REFIT_GROWTH)
            self.end = self._find()

    def _find(self) -> float:
        """The first candidate after the last one with too low a correlation."""
        count = len(self._ended)
        if count < 2:
            return self._onset
        low = min(ats[0] for ats, _ in self._ended)
        high = max(ats[-1] for ats, _ in self._ended)
        points = sorted(
            {*np.geomspace(low, high, NUM_POINTS).tolist(), min(max(self._onset, low), high)}
        )
        final = np.array([best[-1] for _, best in self._ended])
        found = 0.0
        for point, following in zip(points, [*points[1:], high], strict=True):
            there = np.array(
                [
                    best[max(bisect_right(ats, point * (1 + 1e-9)) - 1, 0)]
                    for ats, best in self._ended
                ]
            )
            prior = PRIOR_TRIALS if point >= self._onset * (1 - 1e-9) else 0.0
            correlation = count * _rank_correlation(there, final) + prior
            if correlation / (count + PRIOR_TRIALS) < MIN_CORRELATION:
                found = following
        return found * (1 - 1e-9)


def _onset(ats: Array, losses: Array, ended: bool) -> float:
    """The progress of the last report before a curve began to improve steadily.

    At that report the curve has gained less than `MIN_PACE` of the gain of an even pace, or less
    than it once rose above its best. With several goals the latest of those that have improved.

    Returns:
        0 if the curve improves from its first report on; infinite if it has not begun to improve.
    """
    if len(ats) < 2:
        return 0.0
    best = np.minimum.accumulate(losses, 0)
    gain, above = best[0] - best, np.maximum.accumulate(losses - best, 0)
    some = gain[-1] > 0
    improving = (gain >= above)[1:, some].all(1)
    if not some.any() or not improving.any():
        return 0.0 if ended else math.inf
    even = (ats - ats[0]) / max(ats[-1] - ats[0], 1e-9)
    lags = np.nonzero((gain < MIN_PACE * gain[-1] * even[:, None])[:, some].any(1))[0]
    last = max([int(np.argmax(improving)), *lags.tolist()])
    return float(ats[last]) if last > 0 else 0.0


def _rank_correlation(there: Array, final: Array) -> float:
    """Spearman's rank correlation of two `n x g` losses, the lowest of the goals.

    Goals with equal final losses are left out; 0 if none is left.
    """
    ranks = rankdata([there, final], axis=1)
    spread = ranks.std(1)
    both = ((ranks - ranks.mean(1, keepdims=True)).prod(0)).mean(0)
    found = both / np.where(spread.prod(0) > 0, spread.prod(0), 1.0)
    return min(found[spread[1] > 0].tolist(), default=0.0)
