"""Failures that strike where a measured quantity exceeds a limit that nobody told, such as peak memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .data import Array
from .log_gp import Quantity

NUM_LIMITS = 64
FLOOR = 0.03  # standard deviation, in those of the logarithm, below which no prediction is believed
EXCESS = (
    0.1  # standard deviations by which what failed is taken to have exceeded the limit, at least
)
MOST_FAILED = 100  # that are learned from
BEYOND = 2.0  # standard deviations beyond what failed that the limit may lie


@dataclass(frozen=True)
class Bound:
    """The posterior of the limit, and of what each configuration needs.

    The limit may be anywhere above the largest need that succeeded; each failure makes limits above its own expected
    need unlikely.

    Args:
        limits: `k`, standardised logarithms; log_weights: `k`, of their posterior probabilities.
        count: how many values were measured; those of what failed come after them.
    """

    measured: Quantity
    limits: Tensor
    log_weights: Tensor
    count: int

    @classmethod
    def fit(cls, measured: Quantity, succeeded: Array, failed: Array) -> Bound:
        """Learn the limit from configurations (`n x d`) that kept it and that did not; these needed more than that."""
        least = float(measured.mean(succeeded).max())
        if len(failed) > MOST_FAILED:  # those that seemed to need least say most
            failed = failed[measured.mean(failed).argsort()[:MOST_FAILED].numpy()]
        mean, deviation = measured.moments(failed)
        deviation = deviation.clamp(min=FLOOR)
        most = max(least + FLOOR, float((mean + BEYOND * deviation).max()))
        limits = torch.linspace(least, most, NUM_LIMITS, dtype=torch.float64)
        likelihood = torch.special.log_ndtr((mean - limits[:, None]) / deviation).sum(1)
        log_weights = likelihood - torch.logsumexp(likelihood, 0)
        needed = mean.clamp(min=float((log_weights.exp() * limits).sum()) + EXCESS)
        return cls(measured.told(failed, needed), limits, log_weights, len(measured.model.features))

    def sketch(self) -> Bound:
        """With few of the hyperparameter vectors."""
        return replace(self, measured=self.measured.sketch())

    def log_probability(self, unit: Array) -> Tensor:
        """Of `m` configurations to keep the limit."""
        return self._kept(*self.measured.moments(unit))

    def reached(self, quantile: float) -> float:
        """The probability that the others ascribe to most of what was measured."""
        mean, variance = self.measured.model.leave_one_out()
        spread = (variance.mean(0) + mean.var(0, correction=0)).sqrt()
        return float(self._kept(mean.mean(0), spread)[: self.count].exp().quantile(quantile))

    def _kept(self, mean: Tensor, deviation: Tensor) -> Tensor:
        z = (self.limits[:, None] - mean) / deviation.clamp(min=FLOOR)
        return torch.logsumexp(self.log_weights[:, None] + torch.special.log_ndtr(z), 0).clamp(
            max=0.0
        )
