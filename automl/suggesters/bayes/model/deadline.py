"""A metric within a deadline, composed: quality by steps and seconds by step, each over what can reach it.

A setting that changes nothing but the speed then moves a configuration along the learning curves that are known,
and every report is an observation, not only the last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from automl.core.goals import Goal
from search_spaces import Space

from . import aspects as reach
from .data import Array, Data
from .features import Encoder
from .fit import Fitter, best_and_random, milestone, settled
from .gp import Ensemble
from .kernel import Features
from .log_gp import Quantity, exact_fitter
from .metric_posterior import Belief
from .transforms import Transform

MOST_TRIALS = 150  # two points of each
EARLIER = 3.0  # the second point of a curve has so many times fewer steps than the last
MARGIN = 0.1  # of the range of steps: how far beyond what was seen is extrapolated


@dataclass(frozen=True)
class AtDeadline:
    """Encodes configurations together with the progress that they are expected to make in time.

    Args:
        seconds: the deadline; low, high: logarithms of the smallest and largest number of steps seen.
    """

    encoder: Encoder
    pace: Quantity
    seconds: float
    low: float
    high: float

    def __call__(self, unit: Array) -> Features:
        """Features of `m x d` configurations, as fast as they may well be: what is not known to be slow is tried."""
        return self.encoder(self.after(unit, math.log(self.seconds) - self.pace.hoped(unit)))

    def after(self, unit: Array, log_steps: Array) -> Array:
        """Configurations with the progress of so many steps as a last column, `m x (d + 1)`."""
        progress = (log_steps - self.low) / max(self.high - self.low, 1e-9)
        return np.column_stack([unit, np.clip(progress, -MARGIN, 1.0 + MARGIN)])


class Deadline:
    """Fits a goal `within` a deadline.

    Args:
        space, goal, seed: of the suggester.
    """

    def __init__(self, space: Space, goal: Goal, seed: int) -> None:
        self.goal, self.seed = goal, seed
        quality = Encoder(space, reach.parameters(space, reach.QUALITY), extra=1, bowl=True)
        self.speed = exact_fitter(space, reach.SPEED, seed)
        self.quality = Fitter(quality, quality.prior(), seed)

    def possible(self, data: Data) -> bool:
        """Whether every trial with a result has reported how it got there."""
        rows = np.flatnonzero(np.isfinite(data.losses[:, 0]))
        told = [
            len(data.curves[i]) > 0 and math.isfinite(data.curves[i][-1, 2]) for i in rows.tolist()
        ]
        return self.goal.within is not None and len(rows) >= 2 and all(told)

    def fit(self, data: Data) -> Belief:
        """What is believed of the goal's transformed loss at the deadline."""
        rows = np.flatnonzero(np.isfinite(data.losses[:, 0]))
        transform = Transform.fit(settled(data.losses[rows, 0]))
        points, last = _points([data.curves[row] for row in rows.tolist()])
        trial, log_steps, y = (
            points[:, 0].astype(np.intp),
            np.log(points[:, 1]),
            transform(points[:, 2]),
        )
        count = int((trial < milestone(len(rows))).sum())
        low, high = float(log_steps[:count].min()), float(log_steps[:count].max())
        encoder = AtDeadline(
            self.quality.encoder, self._pace(data), float(self.goal.within or 1.0), low, high
        )
        x = encoder.after(data.unit[rows[trial]], log_steps)
        kept = best_and_random(data.losses[rows, 0], MOST_TRIALS, self.seed)
        order = np.concatenate(
            [last[kept], np.flatnonzero(np.isin(trial, kept) & ~np.isin(np.arange(len(y)), last))]
        )
        u = self.quality.hyperparameters(x, y, count)
        features = self.quality.encoder(x[order])
        model = Ensemble.condition(
            features, torch.from_numpy(y[order]), self.quality.prior_of(count), u
        )
        return Belief(encoder, model, transform, rows[kept])

    def _pace(self, data: Data) -> Quantity:
        """From every trial that got somewhere, failed ones too."""
        timed = np.array([len(curve) > 0 for curve in data.curves])
        seconds = np.array([curve[-1, 1] / curve[-1, 0] for curve in data.curves if len(curve)])
        return Quantity.fit(self.speed, data.unit[timed], seconds)


def _points(curves: Sequence[Array]) -> tuple[Array, NDArray[np.intp]]:
    """Trial, steps and loss of one or two points of each curve, `p x 3`, and which of them are the last of theirs."""
    points: list[tuple[float, float, float]] = []
    last = []
    for trial, curve in enumerate(curves):
        early = int(np.argmin(np.abs(np.log(curve[:, 0] * EARLIER / curve[-1, 0]))))
        for i in sorted({early, len(curve) - 1}):
            points.append((trial, curve[i, 0], curve[i, 2]))
        last.append(len(points) - 1)
    return np.array(points, dtype=np.float64), np.array(last, dtype=np.intp)
