"""A goal within a deadline, composed of quality by step and seconds by step.

Each part is modelled over the parameters that affect it. A setting that changes only the speed
then moves a configuration along known learning curves, and every report is an observation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from automl.core import Goal
from automl.suggesters.bayes.policy import ALL_RULES, Policy
from search_spaces import Space

from . import aspects
from .data import Array, TrialData
from .features import FeatureEncoder
from .fit import MAX_CONDITIONED, GPFitter, best_and_random, milestone, settled
from .gp import Ensemble
from .kernel import Features
from .log_gp import LogGP
from .posterior import MetricPosterior
from .transforms import Transform

EARLIER = 3.0  # the second point of a curve has this many times fewer steps than the last
MARGIN = 0.1  # of the range of steps: how far the model extrapolates


@dataclass(frozen=True)
class DeadlineEncoder:
    """Encodes configurations and their expected progress at the deadline.

    Args:
        encoder: of configurations with progress as a last column.
        pace: predicts seconds per step.
        seconds: the deadline.
        low: logarithm of the smallest number of steps seen.
        high: logarithm of the largest number of steps seen.
        optimistic: whether the pace is assumed one standard deviation better than predicted, so
            that a configuration is tried unless it is known to be slow.
    """

    encoder: FeatureEncoder
    pace: LogGP
    seconds: float
    low: float
    high: float
    optimistic: bool = True

    def __call__(self, unit: Array) -> Features:
        """Features of `m x d` configurations at the deadline."""
        pace = self.pace.optimistic(unit) if self.optimistic else self.pace(unit)
        return self.encoder(self.after(unit, math.log(self.seconds) - pace))

    def after(self, unit: Array, log_steps: Array) -> Array:
        """Configurations with their progress as a last column, `m x (d + 1)`."""
        progress = (log_steps - self.low) / max(self.high - self.low, 1e-9)
        return np.column_stack([unit, np.clip(progress, -MARGIN, 1.0 + MARGIN)])


class DeadlineModel:
    """Fits a goal `within` a deadline."""

    def __init__(self, space: Space, goal: Goal, seed: int, policy: Policy = ALL_RULES) -> None:
        self.goal = goal
        self.seed = seed
        self.policy = policy
        names = aspects.parameters(space, aspects.QUALITY) if policy.aspects else None
        encoder = FeatureEncoder(space, names, extra=1, goal=True, policy=policy)
        self.quality = GPFitter(encoder, encoder.prior(), seed, directed=policy.learned_direction)
        self.speed = LogGP.fitter(space, aspects.SPEED, seed, policy)

    def possible(self, data: TrialData) -> bool:
        """Whether there is a deadline, and every trial with a result has a learning curve."""
        if self.goal.within is None or not self.policy.deadline_model:
            return False
        rows = np.flatnonzero(np.isfinite(data.losses[:, 0]))
        curves = [data.curves[row] for row in rows.tolist()]
        return len(rows) >= 2 and all(len(c) > 0 and math.isfinite(c[-1, 2]) for c in curves)

    def fit(self, data: TrialData) -> MetricPosterior:
        """The posterior of the goal's transformed loss at the deadline."""
        rows = np.flatnonzero(np.isfinite(data.losses[:, 0]))
        transform = Transform.fit(settled(data.losses[rows, 0]), self.policy.knee_transform)
        points, last = _points([data.curves[row] for row in rows.tolist()])
        trial = points[:, 0].astype(np.intp)
        log_steps = np.log(points[:, 1])
        y = transform(points[:, 2])
        count = int((trial < milestone(len(rows))).sum())
        encoder = DeadlineEncoder(
            self.quality.encoder,
            self._pace(data),
            float(self.goal.within or 1.0),
            float(log_steps[:count].min()),
            float(log_steps[:count].max()),
            self.policy.optimistic_pace,
        )
        x = encoder.after(data.unit[rows[trial]], log_steps)
        kept = best_and_random(data.losses[rows, 0], MAX_CONDITIONED // 2, self.seed)
        order = np.concatenate(
            [last[kept], np.flatnonzero(np.isin(trial, kept) & ~np.isin(np.arange(len(y)), last))]
        )
        model = Ensemble.condition(
            self.quality.encoder(x[order]),
            torch.from_numpy(y[order]),
            self.quality.prior_of(count),
            self.quality.hyperparameters(x, y, count),
        )
        return MetricPosterior(encoder, model, transform, rows[kept])

    def _pace(self, data: TrialData) -> LogGP:
        """Seconds per step, from every trial that has made a step, failed ones too."""
        timed = np.array([len(curve) > 0 for curve in data.curves])
        last = np.array([curve[-1] for curve in data.curves if len(curve)])
        return LogGP.fit(self.speed, data.unit[timed], last[:, 1] / last[:, 0], data.nodes[timed])


def _points(curves: Sequence[Array]) -> tuple[Array, NDArray[np.intp]]:
    """Points of each curve, and the rows of the curves' last points.

    Returns:
        Trial, steps and loss of one or two points of each curve, `p x 3`; one row a curve, `t`.
    """
    points: list[tuple[float, float, float]] = []
    last = []
    for trial, curve in enumerate(curves):
        early = int(np.argmin(np.abs(np.log(curve[:, 0] * EARLIER / curve[-1, 0]))))
        for i in sorted({early, len(curve) - 1}):
            points.append((trial, curve[i, 0], curve[i, 2]))
        last.append(len(points) - 1)
    return np.array(points, dtype=np.float64), np.array(last, dtype=np.intp)
