"""Positive quantities that hardly vary between runs, such as seconds a step and peak memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from search_spaces import Space

from . import aspects as reach
from .data import Array
from .features import Encoder
from .fit import Fitter, settled
from .gp import Ensemble, Sampling

MOST_UNEXPLAINED = 0.5
NEARLY_EXACT = (math.log(1e-4), 2.0)  # of the logarithm of the noise variance


def exact_fitter(space: Space, measures: frozenset[str], seed: int) -> Fitter:
    """Of a quantity over the parameters that reach it."""
    encoder = Encoder(space, reach.parameters(space, measures))
    return Fitter(
        encoder, encoder.prior().with_noise(*NEARLY_EXACT), seed, Sampling(num_particles=4)
    )


@dataclass(frozen=True)
class Quantity:
    """Surrogate of the logarithm of a quantity."""

    encoder: Encoder
    model: Ensemble
    centre: float
    scale: float

    @classmethod
    def fit(cls, fitter: Fitter, unit: Array, values: Array) -> Quantity:
        """Learn from `n` configurations and their positive values."""
        y = np.log(values)
        known = settled(y)
        centre, scale = float(known.mean()), max(float(known.std()), 1e-3)
        model, _ = fitter.fit(unit, (y - centre) / scale)
        return cls(fitter.encoder, model, centre, scale)

    def __call__(self, unit: Array) -> Array:
        """Expected logarithm of `m` configurations."""
        return np.asarray(self.mean(unit).numpy() * self.scale + self.centre)

    def mean(self, unit: Array) -> Tensor:
        """Mean of the standardised logarithm of `m` configurations."""
        return self.model.mean(self.encoder(unit))

    def moments(self, unit: Array) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the standardised logarithm of `m` configurations."""
        mean, variance = self.model.predict(self.encoder(unit))
        return mean.mean(0), (variance.mean(0) + mean.var(0, correction=0)).sqrt()

    def sketch(self) -> Quantity:
        """With few of the hyperparameter vectors."""
        return replace(self, model=self.model.sketch())

    def told(self, unit: Array, values: Tensor) -> Quantity:
        """Conditioned further, on standardised logarithms of `m` configurations."""
        features = self.model.features.with_more(self.encoder(unit))
        vectors = len(self.model.u)
        y = torch.cat([self.model.y.expand(vectors, -1), values.expand(vectors, -1)], 1)
        return replace(self, model=Ensemble.condition(features, y, self.model.prior, self.model.u))

    def hoped(self, unit: Array) -> Array:
        """A standard deviation less than the expected logarithm."""
        mean, deviation = self.moments(unit)
        return np.asarray((mean - deviation).numpy() * self.scale + self.centre)

    @property
    def believable(self) -> bool:
        """Whether left-out values are predicted to a part of their variance."""
        mean, _ = self.model.leave_one_out()
        return bool(
            (self.model.y - mean.mean(0)).square().mean() < MOST_UNEXPLAINED * self.model.y.var()
        )
