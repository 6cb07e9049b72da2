"""Maximising a score over a mixed, conditional, constrained space."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np
import torch
from torch import Tensor

from workers.protocol import Params

from .candidates import Lattice
from .data import Array
from .encoding import Encoder
from .feasibility import Feasibility

Score = Callable[[Array], Tensor]
NUM_EVERYWHERE = 800
REFINEMENTS = ((0.01, 0.2), (0.003, 0.05), (0.001, 0.02))
SPREAD_POOL, SPREAD_POOL_FAILING = 64, 256


class Search:
    """Candidates from everywhere and near the best, then rounds of perturbing those that score best.

    Args:
        lattice: of the space; encoder: over all of its parameters, for distances.
    """

    def __init__(self, lattice: Lattice, encoder: Encoder) -> None:
        self.lattice, self.space, self.encoder = lattice, lattice.space, encoder

    def maximise(self, score: Score, best: Array, taken: set[Hashable], rng: np.random.Generator) -> Params | None:
        """The legal configuration not `taken` with the highest score found; None where the space has no other."""
        pool = np.concatenate(
            [
                self._everywhere(rng, NUM_EVERYWHERE),
                self.lattice.near(rng, best[:1], 300, (0.003, 0.3)),
                self.lattice.near(rng, best[:5], 400, (0.01, 0.3)),
                self.lattice.crossed(rng, best, 100),
            ]
        )
        values = score(pool).numpy()
        for scales in REFINEMENTS:
            top = pool[np.argsort(-values, kind="stable")[:4]]
            more = self.lattice.near(rng, top, 150, scales)
            pool, values = np.concatenate([pool, more]), np.concatenate([values, score(more).numpy()])
        return self._first_new(pool[np.argsort(-values, kind="stable")], taken, rng)

    def spread(
        self, known: Array, feasibility: Feasibility, taken: set[Hashable], rng: np.random.Generator
    ) -> Params | None:
        """Far from what is known, among configurations likely to succeed."""
        pool = self._everywhere(rng, SPREAD_POOL_FAILING if feasibility.parts else SPREAD_POOL)
        if len(known):
            distance = torch.cdist(self.encoder(pool).z, self.encoder(known).z).min(1).values
            value = distance.clamp(min=1e-9).log() + 2.0 * feasibility.log_probability(pool)
            pool = pool[torch.argsort(-value, stable=True).numpy()]
        return self._first_new(pool, taken, rng)

    def _everywhere(self, rng: np.random.Generator, count: int) -> Array:
        """Uniform points; where the space has constraints, some of them known to satisfy these."""
        points = self.lattice.everywhere(rng, count)
        if not self.space.constraints:
            return points
        legal = self.space.encode(self.space.sample(rng, min(count, 64)))
        return np.concatenate([legal, points[len(legal) :]])

    def _first_new(self, pool: Array, taken: set[Hashable], rng: np.random.Generator) -> Params | None:
        for start in range(0, len(pool), 32):
            for params in self.space.decode(pool[start : start + 32]):
                if self.space.key(params) not in taken and self.space.legal(params):
                    return params
        return self._any_new(taken, rng)

    def _any_new(self, taken: set[Hashable], rng: np.random.Generator) -> Params | None:
        """Any configuration that is left: by sampling, then, where the space is small, by going through all."""
        for params in self.space.sample(rng, 200):
            if self.space.key(params) not in taken:
                return params
        for params in self.space.decode(self.lattice.everything()):
            if self.space.key(params) not in taken and self.space.legal(params):
                return params
        return None
