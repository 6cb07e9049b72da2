"""Seconds and bytes: a Gaussian process of the logarithm of a positive quantity.

The cost of a trial, the pace within a deadline, the memory of a trial and the prediction before
one is dispatched all use it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from automl.suggesters.bayes.policy import ALL_RULES, Policy
from search_spaces import Space

from .data import Array
from .features import FeatureEncoder
from .fit import GPFitter, settled
from .gp import Ensemble
from .kernel import Features

MIN_MEASURED = 6  # values that a reliable model learns from
MAX_UNEXPLAINED = 0.5  # of the variance, for a model that counts as reliable


@dataclass(frozen=True)
class AnyNodeEncoder:
    """Encodes configurations on an unknown kind of node: one like those of the trials so far.

    Args:
        encoder: of configurations with the indicators of kinds as last columns.
        shares: `k`, of the trials so far, by kind.
    """

    encoder: FeatureEncoder
    shares: Array

    def __call__(self, unit: Array) -> Features:
        """Features of `m x d` configurations."""
        return self.encoder(np.column_stack([unit, np.tile(self.shares, (len(unit), 1))]))


@dataclass(frozen=True)
class LogGP:
    """A surrogate of the standardised logarithm of a quantity."""

    encoder: FeatureEncoder | AnyNodeEncoder
    model: Ensemble
    centre: float
    scale: float

    @staticmethod
    def fitter(
        space: Space, measured: frozenset[str], seed: int, policy: Policy = ALL_RULES
    ) -> GPFitter:
        """The fitter of a quantity with these aspects, see `aspects`."""
        # Few hyperparameter vectors: such quantities hardly vary between runs.
        return GPFitter.of_aspects(space, measured, seed, policy, num_particles=4)

    @classmethod
    def reliable(cls, fitter: GPFitter, unit: Array, values: Array) -> LogGP | None:
        """The model of `n` values, NaN if unknown; None if these are too few or it is unreliable.

        It is reliable if leave-one-out predictions explain half of the variance.
        """
        known = np.isfinite(values)
        if int(known.sum()) < MIN_MEASURED:
            return None
        found = cls.fit(fitter, unit[known], values[known])
        y, mean = found.model.y, found.model.leave_one_out()[0].mean(0)
        return found if bool((y - mean).square().mean() < MAX_UNEXPLAINED * y.var()) else None

    @classmethod
    def fit(
        cls,
        fitter: GPFitter,
        unit: Array,
        values: Array,
        nodes: NDArray[np.str_] | None = None,
    ) -> LogGP:
        """Learn from configurations (`n x d`) and their positive values (`n`).

        Args:
            nodes: `n`, the kind of node of each, if the values depend on it.
        """
        y = np.log(values)
        known = settled(y)
        centre = float(known.mean())
        scale = max(float(known.std()), 1e-3)
        encoder: FeatureEncoder | AnyNodeEncoder = fitter.encoder
        names = np.unique([] if nodes is None else nodes)
        if nodes is not None and len(names) > 1:
            kinds = (nodes[:, None] == names).astype(np.float64)
            fitter = fitter.with_extra(kinds.shape[1])
            encoder = AnyNodeEncoder(fitter.encoder, kinds.mean(0))
            unit = np.column_stack([unit, kinds])
        model, _ = fitter.fit(unit, (y - centre) / scale)
        return cls(encoder, model, centre, scale)

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

    def sketch(self) -> LogGP:
        """A cheap version with few hyperparameter vectors."""
        return replace(self, model=self.model.sketch())

    def with_values(self, unit: Array, values: Tensor) -> LogGP:
        """Condition on the standardised logarithms (`m`) of further configurations too."""
        features = self.model.features.with_more(self.encoder(unit))
        vectors = len(self.model.u)
        y = torch.cat([self.model.y.expand(vectors, -1), values.expand(vectors, -1)], 1)
        return replace(self, model=Ensemble.condition(features, y, self.model.prior, self.model.u))

    def optimistic(self, unit: Array) -> Array:
        """The expected logarithm less one standard deviation, for `m` configurations."""
        mean, deviation = self.moments(unit)
        return np.asarray((mean - deviation).numpy() * self.scale + self.centre)
