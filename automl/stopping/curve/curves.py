"""Learning curves of a sweep, updated with each report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from automl.core import Constraint, Goal, Trial, TrialState
from automl.stopping._ranking import progress
from workers.protocol import Metrics

Array = NDArray[np.float64]
HEAVY = 2.0  # scaled losses above this are compressed by a logarithm
INFEASIBLE = 1.5  # a curve that violates a constraint is at least this much above the median


@dataclass
class Curve:
    """The learning curve of one trial.

    Args:
        ats: progress at each report, ascending and above 0, once every goal has a value.
        losses: the best loss so far of each goal at each of `ats`.
        excess: violation of the constraints, 0 if they hold.
        rate: seconds per unit of progress.
    """

    number: int
    params: dict[str, object]
    state: TrialState = TrialState.WAITING
    ats: list[float] = field(default_factory=list)
    losses: list[tuple[float, ...]] = field(default_factory=list)
    excess: float = 0.0
    rate: float = 1.0
    num_reports: int = 0
    best: tuple[float, ...] = ()

    @property
    def at(self) -> float:
        """Its progress."""
        return self.ats[-1] if self.ats else 0.0


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

    def observe(self, trial: Trial) -> Curve:
        """Take in a trial that is new or has changed."""
        curve = self.all.setdefault(trial.number, Curve(trial.number, dict(trial.params)))
        curve.state = trial.state
        if len(trial.reports) < curve.num_reports:  # an attempt began again
            curve.ats = []
            curve.losses = []
            curve.num_reports = 0
            curve.best = ()
        for point in trial.reports[curve.num_reports :]:
            self._add(curve, trial, progress(point, self.goals), point.metrics)
        if trial.reports:
            last = trial.reports[-1]
            curve.rate = max(last.seconds, 1e-9) / max(progress(last, self.goals), 1e-9)
        if trial.state is TrialState.COMPLETED:
            self.complete = max(self.complete, curve.at)
        return curve

    def _add(self, curve: Curve, trial: Trial, at: float, metrics: Metrics) -> None:
        before = curve.best or (math.inf,) * len(self.goals)
        now = [goal.loss(metrics.get(goal.metric, math.nan)) for goal in self.goals]
        curve.best = tuple(
            (n if goal.at_end else min(b, n)) if math.isfinite(n) else b
            for goal, b, n in zip(self.goals, before, now, strict=True)
        )
        if at > 0 and all(map(math.isfinite, curve.best)):
            if not curve.losses:
                self.first = at
            curve.ats.append(max(at, curve.at))
            curve.losses.append(curve.best)
        curve.num_reports += 1
        curve.excess = sum(
            max(c.excess(trial.metrics[c.metric]), 0.0)
            for c in self.constraints
            if c.metric in trial.metrics
        )
        self.num_reports += 1

    def started(self) -> list[Curve]:
        """The curves with a value of every goal, by number."""
        return [c for _, c in sorted(self.all.items()) if c.losses]

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
