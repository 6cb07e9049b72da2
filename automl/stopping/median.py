"""The median rule (Golovin et al., "Google Vizier", KDD 2017)."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

from automl.core import Constraint, Goal, ReportPoint, Trial

from ._options import check_least, check_positive
from ._ranking import LossVector, progress, ranked, violation
from ._warmup import WarmUp
from .base import CONTINUE, Decision, Stopper

MIN_REPORTS: Final = 2
MAX_COMPARED: Final = 200


class MedianStopper(Stopper):
    """Stops a trial if its best so far is worse than the median of the others at its progress.

    A trial that violates a constraint is worse than any that does not. With several goals a trial
    stops if half of the others are before it in non-dominated sorting.

    Args:
        grace: progress below which nothing is stopped: steps, or seconds if a goal has a time
            limit; None to learn it (`WarmUp`).
        trials: others that reached the same progress, before a trial is stopped.

    Raises:
        UsageError: an option is out of its range.
    """

    name = "median"

    def __init__(
        self, *args: Any, grace: float | None = None, trials: int = 5, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._min_trials = check_least(self.name, "trials", trials, 1)
        self._curves: dict[int, BestCurve] = {}
        self._warmup = WarmUp(self.goals, end=check_positive(self.name, "grace", grace))

    def observe(self, trial: Trial) -> None:
        """Keep the best losses so far at each report of the trial."""
        self._warmup.observe(trial)
        curve = self._curves.get(trial.number)
        if curve is None or not curve.begins(trial.reports):
            curve = self._curves[trial.number] = BestCurve(self.goals, self.constraints)
        for point in trial.reports[len(curve) :]:
            curve.add(point)

    def decide(self, trial: Trial, trials: Sequence[Trial]) -> Decision:
        """Stop below the median."""
        curve = self._curves[trial.number]
        mine = curve.losses[-1]
        if len(curve) < MIN_REPORTS or mine is None or curve.ats[-1] < self._warmup.end:
            return CONTINUE
        at = curve.ats[-1]
        newest = (curve.at(at) for n, curve in reversed(self._curves.items()) if n != trial.number)
        others = list(islice((there for there in newest if there is not None), MAX_COMPARED))
        place = ranked([*others, mine]).index(len(others))
        if len(others) < self._min_trials or place <= len(others) / 2:
            return CONTINUE
        return Decision("stop", f"median: {place} of {len(others)} trials were better at {at:g}")


class BestCurve:
    """The best losses so far at each report of a trial; a report is added in constant time.

    Attributes:
        ats: progress of each report; losses: the loss vector there (see `best_losses`).
    """

    def __init__(self, goals: Sequence[Goal], constraints: Sequence[Constraint]) -> None:
        self._goals = goals
        self._constraints = constraints
        self._best = [math.inf] * len(goals)
        self._latest: dict[str, float] = {}
        self._last: ReportPoint | None = None
        self.ats: list[float] = []
        self.losses: list[LossVector | None] = []

    def __len__(self) -> int:
        return len(self.ats)

    def begins(self, reports: Sequence[ReportPoint]) -> bool:
        """Whether the reports begin with those of this curve; not if an attempt began again."""
        count = len(self)
        return count <= len(reports) and (not count or reports[count - 1] is self._last)

    def add(self, point: ReportPoint) -> None:
        """Add the next report."""
        self._last = point
        self._latest.update(point.metrics)
        for place, goal in enumerate(self._goals):
            loss = goal.loss(point.metrics.get(goal.metric, math.nan))
            if math.isfinite(loss):
                self._best[place] = loss if goal.at_end else min(self._best[place], loss)
        self.ats.append(progress(point, self._goals))
        known = all(map(math.isfinite, self._best))
        excess = violation(self._latest, self._constraints)
        self.losses.append((excess, *self._best) if known else None)

    def at(self, least: float) -> LossVector | None:
        """The loss vector at the first report of progress `least` or more; None before."""
        place = bisect_left(self.ats, least)
        return self.losses[place] if place < len(self.ats) else None
