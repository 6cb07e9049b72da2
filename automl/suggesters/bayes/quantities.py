"""Seconds and bytes, and what follows from them: memory thresholds and goals within a deadline.

Each is a Gaussian process of the logarithm of a positive quantity, over the parameters that affect
it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from automl.core import Goal
from search_spaces import Space

from .data import Array, TrialData
from .kernel import QUALITY, SPEED, Encoder, affecting
from .model import (
    MAX_CONDITIONED,
    EnsembleGP,
    Fitter,
    Knee,
    best_and_random,
    milestone,
    settled,
)

MIN_MEASURED = 6  # values that a reliable model learns from
MAX_UNEXPLAINED = 0.5  # of the variance, for a model that counts as reliable
NUM_THRESHOLDS = 64
MIN_DEVIATION = 0.03  # standard deviation of a prediction, in those of the logarithm
MIN_EXCESS = 0.1  # excess of a failure over the expected threshold, in standard deviations
MAX_FAILED = 100  # failures to learn from
BEYOND = 2.0  # standard deviations by which the threshold may exceed the failures
EARLIER = 3.0  # the second point of a curve has this many times fewer steps than the last
MARGIN = 0.1  # of the range of steps: how far the model extrapolates


@dataclass(frozen=True)
class LogGP:
    """A surrogate of the standardised logarithm of a quantity.

    Args:
        encoder, model: of configurations, and of their standardised logarithms.
        centre, scale: of the logarithm.
    """

    encoder: Encoder
    model: EnsembleGP
    centre: float
    scale: float

    @classmethod
    def reliable(cls, fitter: Fitter, unit: Array, values: Array) -> LogGP | None:
        """The model of `n` values, NaN if unknown; None if these are too few or it is unreliable.

        It is reliable if leave-one-out predictions explain half of the variance.
        """
        known = np.isfinite(values)
        if int(known.sum()) < MIN_MEASURED:
            return None
        found = cls.fit(fitter, unit[known], values[known])
        y, mean = found.model.y[0], found.model.leave_one_out()[0].mean(0)
        return found if bool((y - mean).square().mean() < MAX_UNEXPLAINED * y.var()) else None

    @classmethod
    def fit(cls, fitter: Fitter, unit: Array, values: Array) -> LogGP:
        """Learn from configurations (`n x d`) and their positive values (`n`)."""
        y = np.log(values)
        known = settled(y)
        centre, scale = float(known.mean()), max(float(known.std()), 1e-3)
        model, _ = fitter.fit(unit, (y - centre) / scale)
        return cls(fitter.encoder, model, centre, scale)

    def moments(self, unit: Array) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the standardised logarithm of `m` configurations."""
        mean, variance = self.model.moments(self.encoder(unit))
        return mean.mean(0), (variance.mean(0) + mean.var(0, correction=0)).sqrt()


class LatentThreshold:
    """Failures above an unknown threshold of a measured quantity, such as peak memory.

    The threshold lies above the largest success. Each failure makes thresholds above its own
    expected quantity unlikely.

    Args:
        quantity: its surrogate.
        succeeded, failed: the configurations that did, `n x d` each, one of each at least.
    """

    def __init__(self, quantity: LogGP, succeeded: Array, failed: Array) -> None:
        self.quantity = quantity
        least = float(quantity.moments(succeeded)[0].max())
        # The failures with the smallest quantity say most.
        failed = failed[quantity.moments(failed)[0].argsort()[:MAX_FAILED].numpy()]
        mean, deviation = quantity.moments(failed)
        deviation = deviation.clamp(min=MIN_DEVIATION)
        most = max(least + MIN_DEVIATION, float((mean + BEYOND * deviation).max()))
        self.thresholds = torch.linspace(least, most, NUM_THRESHOLDS, dtype=torch.float64)
        log = torch.special.log_ndtr((mean - self.thresholds[:, None]) / deviation).sum(1)
        self.log_weights = log - torch.logsumexp(log, 0)
        expected = float((self.log_weights.exp() * self.thresholds).sum())
        self.model = quantity.model.condition_on_observations(
            quantity.encoder(failed), mean.clamp(min=expected + MIN_EXCESS)
        )

    def log_probability(self, unit: Array) -> Tensor:
        """Log probability of `m` configurations to stay below the threshold."""
        mean, variance = self.model.moments(self.quantity.encoder(unit))
        deviation = (variance.mean(0) + mean.var(0, correction=0)).sqrt()
        z = (self.thresholds[:, None] - mean.mean(0)) / deviation.clamp(min=MIN_DEVIATION)
        weighted = self.log_weights[:, None] + torch.special.log_ndtr(z)
        return torch.logsumexp(weighted, 0).clamp(max=0.0)


class DeadlineModel:
    """Fits a goal `within` a deadline, composed of quality by step and seconds by step.

    Each part is modelled over the parameters that affect it. A setting that changes only the speed
    then moves a configuration along known learning curves, and every report is an observation. The
    model of quality has the logarithm of the steps as a further input.
    """

    def __init__(self, space: Space, goal: Goal, seed: int) -> None:
        self.goal, self.seed = goal, seed
        self.quality = Fitter(Encoder(space, affecting(space, QUALITY), extra=1), seed)
        self.speed = Fitter.of_aspects(space, SPEED, seed, members=4)

    def possible(self, data: TrialData) -> bool:
        """Whether there is a deadline, and every trial with a result has a learning curve."""
        rows = np.flatnonzero(np.isfinite(data.losses[:, 0]))
        whole = all(np.isfinite(data.curves[row][-1:, 2]).any() for row in rows.tolist())
        return self.goal.within is not None and len(rows) >= 2 and whole

    def fit(
        self, data: TrialData
    ) -> tuple[Callable[[Array], Tensor], EnsembleGP, Knee, NDArray[np.intp]]:
        """Encoder, model of minus the transformed loss, transform, and the rows of its trials."""
        rows = np.flatnonzero(np.isfinite(data.losses[:, 0]))
        transform = Knee(settled(data.losses[rows, 0]))
        timed = [row for row, curve in enumerate(data.curves) if len(curve)]
        ends = np.array([data.curves[row][-1] for row in timed])
        pace = LogGP.fit(self.speed, data.unit[timed], ends[:, 1] / ends[:, 0])
        points = np.array(
            [
                (i, *point)
                for i, row in enumerate(rows.tolist())
                for point in _two_points(data.curves[row])
            ]
        )
        trial, log_steps = points[:, 0].astype(np.intp), np.log(points[:, 1])
        last = np.flatnonzero(np.diff(trial, append=-1))  # points of each trial
        y = -transform(torch.from_numpy(points[:, 3]))[0].numpy()
        some = trial < milestone(len(rows))
        low, high = log_steps[some].min(), log_steps[some].max()

        def after(unit: Array, log_steps: Array) -> Array:
            progress = (log_steps - low) / max(high - low, 1e-9)
            return np.column_stack([unit, np.clip(progress, -MARGIN, 1.0 + MARGIN)])

        def at_deadline(unit: Array) -> Tensor:
            mean, deviation = pace.moments(unit)
            # So a configuration is tried unless it is known to be slow.
            optimistic = (mean - deviation).numpy() * pace.scale + pace.centre
            return self.quality.encoder(after(unit, math.log(self.goal.within or 1.0) - optimistic))

        x = after(data.unit[rows[trial]], log_steps)
        kept = best_and_random(data.losses[rows, 0], MAX_CONDITIONED // 2, self.seed)
        rest = np.flatnonzero(np.isin(trial, kept) & ~np.isin(np.arange(len(y)), last))
        order = np.concatenate([last[kept], rest])
        kernel = self.quality.kernel(x[some], y[some], -y[some])
        model = EnsembleGP(kernel, self.quality.encoder(x[order]), torch.from_numpy(y[order]))
        return at_deadline, model, transform, rows[kept]


def _two_points(curve: Array) -> Array:
    """The last point of a curve, after one with fewer steps if there is one."""
    early = int(np.argmin(np.abs(np.log(curve[:, 0] * EARLIER / curve[-1, 0]))))
    return curve[sorted({early, len(curve) - 1})]
