"""Fits one Gaussian process: hyperparameters from part of the data, conditioned on part of it.

Both parts are bounded. The first grows in steps, so that hyperparameters stay for some trials.
`surrogates` says which Gaussian processes there are.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from automl.suggesters.bayes.policy import ALL_RULES, Policy
from search_spaces import Space

from . import aspects
from .data import Array, digest
from .features import FeatureEncoder
from .gp import Ensemble, Sampling, sample_hyperparameters
from .kernel import HyperparameterPrior
from .repeated import Repeated

MAX_CONDITIONED = 300
MAX_FITTED = 128
DIRECTED = 20  # trials before which a direction would only make predictions less certain
PARTICLES = ((80, 10), (160, 6), (math.inf, 4))  # by trials: with more, vectors differ less
MAX_KEPT = 8  # answers that a fitter remembers
NEARLY_EXACT = (math.log(1e-4), 2.0)  # prior of the log noise variance of seconds and bytes


def milestone(count: int) -> int:
    """How many of `count` trials hyperparameters are learned from; grows by about a tenth."""
    step = max(1, 1 << int(math.log2(max(count, 10) / 10)))
    return count - count % step


def settled(values: Array) -> Array:
    """The values up to the milestone. Scales are learned from them, so that they stay as well."""
    return values[: milestone(len(values))]


def best_and_random(values: Array, size: int, seed: int) -> NDArray[np.intp]:
    """At most `size` rows in order: one half the best, the other half random."""
    if len(values) <= size:
        return np.arange(len(values))
    order = np.argsort(values, kind="stable")
    rest = np.random.default_rng([seed, 1]).permutation(order[size // 2 :])[: size - size // 2]
    return np.sort(np.concatenate([order[: size // 2], rest]))


@dataclass
class GPFitter:
    """Fits one Gaussian process and remembers its newest hyperparameters.

    The answer depends only on the data and the seed, never on earlier calls.

    Args:
        encoder: of configurations.
        prior: of the hyperparameters.
        seed: of their samples.
        sampling: how they are drawn.
        directed: whether a direction is learned.
    """

    encoder: FeatureEncoder
    prior: HyperparameterPrior
    seed: int
    sampling: Sampling = field(default_factory=Sampling)
    directed: bool = True
    memory: OrderedDict[bytes, torch.Tensor] = field(default_factory=OrderedDict)
    wider: dict[int, GPFitter] = field(default_factory=dict)

    @classmethod
    def of_aspects(
        cls,
        space: Space,
        measured: frozenset[str],
        seed: int,
        policy: Policy = ALL_RULES,
        *,
        noise: tuple[float, float] | None = None,
        goal: bool = False,
        num_particles: int = 10,
    ) -> GPFitter:
        """The fitter of a metric with these aspects, over the parameters that affect it.

        Args:
            measured: the aspects, see `aspects`.
            noise: mean and scale of the log noise variance, by default those of the aspects.
            goal: whether the metric is a goal's loss.
            num_particles: most hyperparameter vectors.
        """
        names = aspects.parameters(space, measured) if policy.aspects else None
        encoder = FeatureEncoder(space, names, goal=goal, policy=policy)
        prior = encoder.prior()
        if noise is None and "quality" not in measured:
            noise = NEARLY_EXACT
        if noise is not None:
            prior = prior.with_noise(*noise)
        return cls(encoder, prior, seed, Sampling(num_particles), policy.learned_direction)

    def with_extra(self, count: int) -> GPFitter:
        """The same for configurations with this many further columns of numbers."""
        if count not in self.wider:
            encoder = self.encoder.with_extra(count)
            prior = encoder.prior().with_noise(*self.prior.noise)
            self.wider[count] = GPFitter(encoder, prior, self.seed, self.sampling, self.directed)
        return self.wider[count]

    def hyperparameters(
        self,
        unit: Array,
        y: Array,
        count: int | None = None,
        repeated: Repeated | None = None,
    ) -> torch.Tensor:
        """`s x p` standardised hyperparameters, learned from the first `count` rows.

        Args:
            unit: `n x d` configurations.
            y: `n`, targets.
            count: by default the `milestone` of n.
            repeated: how many runs each target is the mean of; None for one each.
        """
        count = milestone(len(y)) if count is None else count
        rows = best_and_random(y[:count], MAX_FITTED, self.seed)
        unit, y = unit[:count][rows], y[:count][rows]
        of = [] if repeated is None else [repeated.runs[rows], repeated.squares]
        key = digest(unit, y, *of)
        if key not in self.memory:
            most = next(size for trials, size in PARTICLES if count <= trials)
            features = self.encoder(unit)
            if repeated is not None:
                features = replace(features, runs=torch.from_numpy(repeated.runs[rows]))
            self.memory[key] = sample_hyperparameters(
                features,
                torch.from_numpy(y),
                self.prior_of(count, repeated),
                replace(self.sampling, num_particles=min(most, self.sampling.num_particles)),
                torch.Generator().manual_seed(self.seed),
            )
            while len(self.memory) > MAX_KEPT:
                self.memory.popitem(last=False)
        return self.memory[key]

    def prior_of(self, count: int, repeated: Repeated | None = None) -> HyperparameterPrior:
        """The prior of hyperparameters that are learned from `count` rows."""
        directed = self.directed and count >= DIRECTED
        prior = self.prior if directed else self.prior.without_direction()
        return prior if repeated is None else repeated.known(prior)

    def fit(
        self,
        unit: Array,
        y: Array,
        order: Array | None = None,
        repeated: Repeated | None = None,
    ) -> tuple[Ensemble, NDArray[np.intp]]:
        """Condition on at most `MAX_CONDITIONED` of the standardised targets `y`.

        Args:
            order: the smallest are kept first, by default those of `y`.
            repeated: how many runs each target is the mean of; None for one each.

        Returns:
            The ensemble, and the rows that it is conditioned on, ascending.
        """
        rows = best_and_random(y if order is None else order, MAX_CONDITIONED, self.seed)
        features = self.encoder(unit[rows])
        if repeated is not None:
            features = replace(features, runs=torch.from_numpy(repeated.runs[rows]))
        model = Ensemble.condition(
            features,
            torch.from_numpy(y[rows]),
            self.prior_of(milestone(len(y)), repeated),
            self.hyperparameters(unit, y, repeated=repeated),
        )
        return model, rows
