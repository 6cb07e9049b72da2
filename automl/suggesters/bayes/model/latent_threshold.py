"""Failures above an unknown threshold of a measured quantity, such as peak memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from .data import Array
from .log_gp import LogGP

NUM_THRESHOLDS = 64
MIN_DEVIATION = 0.03  # standard deviation of a prediction, in those of the logarithm
MIN_EXCESS = 0.1  # excess of a failure over the expected threshold, in standard deviations
MAX_FAILED = 100  # failures to learn from
BEYOND = 2.0  # standard deviations by which the threshold may exceed the failures


@dataclass(frozen=True)
class LatentThreshold:
    """The posterior of the threshold, and of the quantity at each configuration.

    The threshold lies above the largest success. Each failure makes thresholds above its own
    expected quantity unlikely. If kinds of nodes have thresholds of their own, this is the one of
    a node like those of the trials so far.

    Args:
        quantity: its surrogate.
        thresholds: `k`, standardised logarithms, of all kinds of nodes.
        log_weights: `k`, logarithms of their posterior probabilities.
    """

    quantity: LogGP
    thresholds: Tensor
    log_weights: Tensor

    @classmethod
    def fit(cls, quantity: LogGP, groups: Sequence[tuple[float, Array, Array]]) -> LatentThreshold:
        """Learn the thresholds of all kinds of nodes; a new trial may come to any of them.

        Args:
            quantity: its surrogate.
            groups: of each kind of node, its share of the trials, and the configurations that
                succeeded and failed there, `n x d` each; one at least has failures.
        """
        of_kinds = [_OfKind.fit(quantity, *rest) for _, *rest in groups]
        shares = [math.log(share) for share, *_ in groups]
        failed = np.concatenate([one.failed for one in of_kinds])
        return cls(
            quantity.with_values(failed, torch.cat([one.exceeded for one in of_kinds])),
            torch.cat([one.thresholds for one in of_kinds]),
            torch.cat(
                [one.log_weights + share for one, share in zip(of_kinds, shares, strict=True)]
            ),
        )

    def sketch(self) -> LatentThreshold:
        """A cheap version with few hyperparameter vectors."""
        return replace(self, quantity=self.quantity.sketch())

    def log_probability(self, unit: Array) -> Tensor:
        """Log probability of `m` configurations to stay below the threshold."""
        mean, deviation = self.quantity.moments(unit)
        z = (self.thresholds[:, None] - mean) / deviation.clamp(min=MIN_DEVIATION)
        weighted = self.log_weights[:, None] + torch.special.log_ndtr(z)
        return torch.logsumexp(weighted, 0).clamp(max=0.0)


@dataclass(frozen=True)
class _OfKind:
    """The threshold of one kind of node, and the values that its failures (`f x d`) exceeded."""

    thresholds: Tensor
    log_weights: Tensor
    failed: Array
    exceeded: Tensor

    @classmethod
    def fit(cls, quantity: LogGP, succeeded: Array, failed: Array) -> _OfKind:
        if not len(failed):  # no limit is known
            unlimited = torch.tensor([math.inf], dtype=torch.float64)
            return cls(unlimited, torch.zeros_like(unlimited), failed, unlimited[:0])
        known = quantity.mean(succeeded) if len(succeeded) else quantity.model.y.min()
        least = float(known.max())
        if len(failed) > MAX_FAILED:  # the failures with the smallest quantity say most
            failed = failed[quantity.mean(failed).argsort()[:MAX_FAILED].numpy()]
        mean, deviation = quantity.moments(failed)
        deviation = deviation.clamp(min=MIN_DEVIATION)
        most = max(least + MIN_DEVIATION, float((mean + BEYOND * deviation).max()))
        thresholds = torch.linspace(least, most, NUM_THRESHOLDS, dtype=torch.float64)
        likelihood = torch.special.log_ndtr((mean - thresholds[:, None]) / deviation).sum(1)
        log_weights = likelihood - torch.logsumexp(likelihood, 0)
        exceeded = mean.clamp(min=float((log_weights.exp() * thresholds).sum()) + MIN_EXCESS)
        return cls(thresholds, log_weights, failed, exceeded)
