"""Fits: hyperparameters from a bounded, quantised part of the data, conditioned on a bounded part of it."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .data import Array, digest
from .features import Encoder
from .gp import Ensemble, Sampling, sample_hyperparameters
from .kernel import Prior

MOST_CONDITIONED = 300
MOST_FITTED = 128
THOROUGH = Sampling(ascent=20)  # of goals; twice as long as what has only to be avoided or kept
DIRECTED = 20  # trials from which a direction is learned: of fewer it only widens what is believed
PARTICLES = (
    (80, 10),
    (160, 6),
    (math.inf, 4),
)  # by trials: the more there are, the less the vectors differ


def milestone(count: int) -> int:
    """How many of `count` trials the hyperparameters are learned from: all of few, then steps of about a tenth."""
    step = max(1, 1 << int(math.log2(max(count, 10) / 10)))
    return count - count % step


def settled(values: Array) -> Array:
    """Those from which the hyperparameters are learned: scales are learned from them too, so that both stay."""
    return values[: milestone(len(values))]


def best_and_random(values: Array, size: int, seed: int) -> NDArray[np.intp]:
    """Rows of the best half of `size` and a random rest, in order; all where there are no more than `size`."""
    if len(values) <= size:
        return np.arange(len(values))
    order = np.argsort(values, kind="stable")
    rest = np.random.default_rng([seed, 1]).permutation(order[size // 2 :])[: size - size // 2]
    return np.sort(np.concatenate([order[: size // 2], rest]))


@dataclass
class Fitter:
    """Learns the hyperparameters of one surrogate and remembers the newest few answers.

    The answer depends only on the data and the seed, never on earlier calls.
    """

    encoder: Encoder
    prior: Prior
    seed: int
    sampling: Sampling = field(default_factory=Sampling)
    memory: OrderedDict[bytes, Tensor] = field(default_factory=OrderedDict)

    def hyperparameters(self, unit: Array, y: Array, count: int | None = None) -> Tensor:
        """`s x p` standardised hyperparameters learned from the first `count`, else `milestone`, of the rows given."""
        count = milestone(len(y)) if count is None else count
        unit, y = unit[:count], y[:count]
        rows = best_and_random(y, MOST_FITTED, self.seed)
        unit, y = unit[rows], y[rows]
        key = digest(unit, y)
        if key not in self.memory:
            generator = torch.Generator().manual_seed(self.seed)
            particles = next(size for most, size in PARTICLES if count <= most)
            sampling = replace(
                self.sampling, num_particles=min(particles, self.sampling.num_particles)
            )
            targets = torch.from_numpy(y)
            prior = self.prior_of(count)
            self.memory[key] = sample_hyperparameters(
                self.encoder(unit), targets, prior, sampling, generator
            )
            while len(self.memory) > 8:
                self.memory.popitem(last=False)
        return self.memory[key]

    def prior_of(self, count: int) -> Prior:
        """The prior of hyperparameters that are learned from so many rows."""
        return self.prior if count >= DIRECTED else self.prior.straight()

    def fit(
        self, unit: Array, y: Array, order: Array | None = None
    ) -> tuple[Ensemble, NDArray[np.intp]]:
        """Condition on at most `MOST_CONDITIONED` of the targets (standardised), the best by `order` (by default y).

        Returns:
            The ensemble, and the rows that it is conditioned on, ascending.
        """
        u, prior = self.hyperparameters(unit, y), self.prior_of(milestone(len(y)))
        rows = best_and_random(y if order is None else order, MOST_CONDITIONED, self.seed)
        return Ensemble.condition(
            self.encoder(unit[rows]), torch.from_numpy(y[rows]), prior, u
        ), rows
