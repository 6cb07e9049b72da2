"""Learning curves as a stopper sees them, kept up to date as reports come."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from automl.core.goals import Constraint, Goal
from automl.core.trial import Trial, TrialState
from automl.stopping._merit import progress

Array = NDArray[np.float64]
HEAVY = 2.0  # beyond so many times the distance from the best to the median, losses count by their logarithm
INFEASIBLE = 1.5  # how much worse than the median a curve that breaks a constraint is at least


@dataclass
class Curve:
    """One trial: where it reported, and the best losses that it had by then.

    Args:
        ats: progress at each report, ascending, from when every goal has a value; losses: the best so far of each.
        excess: over the constraints, 0 where they hold.
        rate: seconds per unit of progress.
    """

    number: int
    params: dict[str, object]
    state: TrialState = TrialState.WAITING
    ats: list[float] = field(default_factory=list)
    losses: list[tuple[float, ...]] = field(default_factory=list)
    excess: float = 0.0
    rate: float = 1.0
    failed: bool = False
    num_reports: int = 0
    best: tuple[float, ...] = ()

    @property
    def at(self) -> float:
        """How far it is."""
        return self.ats[-1] if self.ats else 0.0

    @property
    def known(self) -> bool:
        """Whether it has reported a value for every goal."""
        return bool(self.losses)


class Curves:
    """The curves of a sweep."""

    def __init__(self, goals: Sequence[Goal], constraints: Sequence[Constraint]) -> None:
        self.goals, self.constraints = goals, constraints
        self.all: dict[int, Curve] = {}
        self.num_reports = 0
        self.first = 1.0  # where the last new trial reported first
        self.since = 0.0  # reports before say nothing of the end
        self.complete = 0.0  # the furthest that a trial which ended by itself has come

    def observe(self, trial: Trial) -> Curve:
        """Take in a trial that is new or has changed."""
        curve = self.all.setdefault(trial.number, Curve(trial.number, dict(trial.params)))
        curve.state, curve.failed = trial.state, trial.state is TrialState.FAILED
        if len(trial.reports) < curve.num_reports:
            curve.ats, curve.losses, curve.num_reports, curve.best = (
                [],
                [],
                0,
                (),
            )  # an attempt began again
        for point in trial.reports[curve.num_reports :]:
            self._add(curve, trial, progress(point, self.goals), point.metrics)
        if trial.reports:
            last = trial.reports[-1]
            curve.rate = max(last.seconds, 1e-9) / max(progress(last, self.goals), 1e-9)
        if trial.state is TrialState.COMPLETED:
            self.complete = max(self.complete, curve.at)
        return curve

    def _add(self, curve: Curve, trial: Trial, at: float, metrics: object) -> None:
        assert hasattr(metrics, "get")
        before = curve.best or (math.inf,) * len(self.goals)
        now = [goal.loss(metrics.get(goal.metric, math.nan)) for goal in self.goals]
        curve.best = tuple(
            min(b, n) if math.isfinite(n) else b for b, n in zip(before, now, strict=True)
        )
        if all(map(math.isfinite, curve.best)):
            if not curve.losses:
                self.first = max(at, 1e-9)
            curve.ats.append(max(at, curve.at))
            curve.losses.append(curve.best)
        curve.num_reports += 1
        known = [
            c.excess(trial.metrics[c.metric]) for c in self.constraints if c.metric in trial.metrics
        ]
        curve.excess = sum(max(excess, 0.0) for excess in known)
        self.num_reports += 1

    def begun(self) -> list[Curve]:
        """Those that have reported a value for every goal, by number."""
        return [c for _, c in sorted(self.all.items()) if c.known]

    def known(self) -> list[Curve]:
        """Those of them that have come to where reports say something."""
        return [c for c in self.begun() if c.at >= self.since]


@dataclass(frozen=True)
class Scale:
    """Losses to targets: 0 for the best, 1 for the median of the newest, heavy tails by their logarithm.

    Several goals become one by the augmented Chebyshev function (Knowles, "ParEGO", 2006).
    """

    low: Array
    spread: Array
    weights: Array

    @classmethod
    def fit(cls, last: Array, excess: Array, weights: Array) -> Scale:
        """From the newest losses of each curve (`n x g`) and its excess over the constraints (`n`).

        `weights` (one a goal) make one number of several goals.
        """
        feasible = excess <= 0
        low = last[feasible].min(0) if feasible.any() else last.min(0)
        return cls(low, np.maximum(np.median(last, 0) - low, 1e-12), weights)

    def targets(self, losses: Array, excess: Array) -> Array:
        """One a row of losses, `n x g` to `n`."""
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
