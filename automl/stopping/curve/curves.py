"""Learning curves of a sweep, updated with each report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from automl.core import Constraint, Goal, Trial, TrialState
from automl.core.trial import violation
from automl.stopping._ranking import TrialCurves, progress

Array = NDArray[np.float64]
HEAVY = 2.0  # scaled losses above this are compressed by a logarithm
INFEASIBLE = 1.5  # a curve that violates a constraint is at least this much above the median


@dataclass(frozen=True)
class Curve:
    """A trial whose learning curve is predicted.

    Args:
        trial: as it is now.
        reported: its losses at each report.
        excess: violation of the constraints, 0 if they hold.
        rate: seconds per unit of progress.
    """

    trial: Trial
    reported: TrialCurves
    excess: float
    rate: float

    @property
    def has_begun(self) -> bool:
        """Whether there is a report with progress and a value of every goal."""
        return self.reported.begin < self.reported.count

    @property
    def at(self) -> float:
        """Its progress; 0 before it has begun."""
        return self.reported.at(self.reported.count - 1) if self.has_begun else 0.0


class Curves:
    """The curves of a sweep."""

    def __init__(self, goals: Sequence[Goal], constraints: Sequence[Constraint]) -> None:
        self.goals = goals
        self.constraints = constraints
        self.all: dict[int, Curve] = {}
        self.num_reports = 0
        self.first = 1.0  # progress of the first report of the newest trial
        self.warmup_end = 0.0  # earlier reports are ignored
        self.complete = 0.0  # the largest progress of a completed trial

    def observe(self, trial: Trial) -> None:
        """Take in a trial that is new or has changed."""
        reported = TrialCurves(trial, self.goals, self.constraints)
        rate = 1.0
        if trial.reports:
            last = trial.reports[-1]
            rate = max(last.seconds, 1e-9) / max(progress(last, self.goals), 1e-9)
        curve = Curve(trial, reported, violation(trial.metrics, self.constraints), rate)
        before = self.all.get(trial.number)
        if before is not None and before.reported.count > reported.count:
            before = None  # an attempt began again
        self.all[trial.number] = curve
        self.num_reports += reported.count - (before.reported.count if before else 0)
        if curve.has_begun and not (before and before.has_begun):
            self.first = reported.at(reported.begin)
        if trial.state is TrialState.COMPLETED:
            self.complete = max(self.complete, curve.at)

    def started(self) -> list[Curve]:
        """The curves with a value of every goal, by number."""
        return [c for _, c in sorted(self.all.items()) if c.has_begun]

    def known(self) -> list[Curve]:
        """Those of them that are past the warm-up."""
        return [c for c in self.started() if c.at >= self.warmup_end]


@dataclass(frozen=True)
class LossScale:
    """Scales losses to targets of the model: 0 for the best, 1 for the median.

    Heavy tails are compressed by a logarithm. Several goals are joined by the augmented Chebyshev
    function (Knowles, "ParEGO", 2006).
    """

    low: Array
    spread: Array
    weights: Array

    @classmethod
    def fit(cls, last: Array, excess: Array, weights: Array) -> LossScale:
        """Fit to the newest losses of each curve (`n x g`) and their violations (`n`).

        Args:
            weights: of the goals, `g`, for joining them.
        """
        feasible = excess <= 0
        low = last[feasible].min(0) if feasible.any() else last.min(0)
        return cls(low, np.maximum(np.median(last, 0) - low, 1e-12), weights)

    def targets(self, losses: Array, excess: Array) -> Array:
        """The targets `n` of losses `n x g` and violations `n`."""
        relative = (losses - self.low) / self.spread
        relative = np.where(
            relative > HEAVY, HEAVY + np.log1p(np.maximum(relative - HEAVY, 0.0)), relative
        )
        weighted = relative * self.weights
        joined = (
            weighted.max(1) + 0.05 * weighted.sum(1) if len(self.weights) > 1 else relative[:, 0]
        )
        joined = np.where(excess > 0, np.maximum(joined, 1.0) + INFEASIBLE, joined)
        return np.where(np.isfinite(joined), joined, HEAVY + 2.0)
