"""The probability of success: one model for each kind of failure seen so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .data import Array
from .features import FeatureEncoder
from .fit import GPFitter, settled
from .gp import Ensemble
from .latent_threshold import LatentThreshold

BLUR = 0.25  # variance of labels beyond the regression's; fitted to the fate of chosen candidates


@dataclass(frozen=True)
class FailureClassifier:
    """Whether one kind of failure stays away: Gaussian process regression on labels +1 and -1.

    The probability of success is that of a positive value. Laplace's approximation with a logistic
    likelihood predicts better (log density -0.36 against -0.41), but searches with it were worse,
    for an unknown reason.

    Args:
        encoder: of configurations.
        model: of the labels less `offset`.
        offset: their shrunken mean.
    """

    encoder: FeatureEncoder
    model: Ensemble
    offset: float

    @classmethod
    def fit(
        cls, fitter: GPFitter, unit: Array, kinds: NDArray[np.str_], kind: str
    ) -> FailureClassifier:
        """Learn from the successes and the failures of this kind."""
        rows = (kinds == "") | (kinds == kind)
        labels = np.where(kinds[rows] == "", 1.0, -1.0)
        known = settled(labels)
        offset = float(known.sum()) / (len(known) + 2.0)
        newest = np.arange(len(labels), 0, -1.0)
        model, _ = fitter.fit(unit[rows], labels - offset, newest)
        return cls(fitter.encoder, model, offset)

    def sketch(self) -> FailureClassifier:
        """A cheap version with few hyperparameter vectors."""
        return replace(self, model=self.model.sketch())

    def log_probability(self, unit: Array) -> Tensor:
        """Log probability of success of `m` configurations."""
        mean, variance = self.model.predict(self.encoder(unit))
        variance = variance + self.model.hyper.noise[:, None]
        z = (mean + self.offset) / (variance + BLUR).sqrt()
        return torch.logsumexp(torch.special.log_ndtr(z), 0) - math.log(len(mean))


@dataclass(frozen=True)
class FailurePosterior:
    """The probability that no kind of failure strikes, the kinds being independent.

    Args:
        parts: one model for each kind.
    """

    parts: Sequence[FailureClassifier | LatentThreshold] = ()

    def sketch(self) -> FailurePosterior:
        """A cheap version with few hyperparameter vectors."""
        return FailurePosterior([part.sketch() for part in self.parts])

    def log_probability(self, unit: Array) -> Tensor:
        """Log probability of success of `m` configurations."""
        total = torch.zeros(len(unit), dtype=torch.float64)
        for part in self.parts:
            total += part.log_probability(unit)
        return total
