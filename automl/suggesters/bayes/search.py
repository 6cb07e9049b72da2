"""Maximises the acquisition over a mixed, conditional, constrained domain."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

import numpy as np

from workers.protocol import Params

from .candidates import CandidateSampler
from .model.data import Array

if TYPE_CHECKING:
    from torch import Tensor

    Score = Callable[[Array], Tensor]
NUM_EVERYWHERE = 800
NUM_KEPT = 300  # candidates that the sketch keeps
NUM_COPIES = 10  # of each good configuration, with different values of newly active parameters
WORTHLESS = -300.0  # score below which nothing is gained, or failure is likely
REFINEMENTS = ((0.01, 0.2), (0.003, 0.05), (0.001, 0.02))
DECODED = 32  # candidates decoded at once


class AcquisitionOptimizer:
    """Scores candidates everywhere and near the best, then perturbs the best of them in rounds."""

    def __init__(self, sampler: CandidateSampler) -> None:
        self.sampler = sampler
        self.space = sampler.space

    def maximise(
        self,
        score: Score,
        best: Array,
        taken: set[Hashable],
        rng: np.random.Generator,
        *,
        sketch: Score | None = None,
        local: bool = False,
    ) -> Params | None:
        """The new configuration with the highest score found.

        Args:
            score: of candidates.
            best: configurations to look around, the best first.
            taken: keys of known configurations.
            sketch: a cheaper score, which pre-selects candidates.
            local: whether to stay near the best.

        Returns:
            None if the space has no new one.
        """
        near = self.sampler.near
        pool = near(rng, best[:1], 600, (0.003, 0.1)) if local else self._pool(rng, best)
        if sketch is not None:
            pool = pool[np.argsort(-sketch(pool).numpy(), kind="stable")[:NUM_KEPT]]
        values = score(pool).numpy()
        for scales in REFINEMENTS:
            top = pool[np.argsort(-values, kind="stable")[:4]]
            more = near(rng, top, 150, scales)
            pool = np.concatenate([pool, more])
            values = np.concatenate([values, score(more).numpy()])
        return self.first_new(pool[np.argsort(-values, kind="stable")], taken, rng)

    def changed(
        self,
        score: Score,
        best: Array,
        taken: set[Hashable],
        rng: np.random.Generator,
        held: tuple[int, float],
    ) -> Params | None:
        """The most promising of the `best` with one parameter set and nothing else changed.

        The trial then tells about that parameter. Newly active parameters are drawn.

        Returns:
            None if nothing is gained by it.
        """
        pool = self.sampler.forced(rng, np.repeat(best, NUM_COPIES, axis=0), *held)
        values = score(pool).numpy() if len(pool) else np.empty(0)
        order = np.argsort(-values, kind="stable")
        return self.sampler.domain.first_new(
            self.space.decode(pool[order[values[order] > WORTHLESS]]), taken
        )

    def first_new(
        self, pool: Array, taken: set[Hashable], rng: np.random.Generator
    ) -> Params | None:
        """The first candidate that is legal and not taken, else a random configuration."""
        domain = self.sampler.domain
        for start in range(0, len(pool), DECODED):
            found = domain.first_new(self.space.decode(pool[start : start + DECODED]), taken)
            if found is not None:
                return found
        return next(iter(domain.new_points(rng, taken, 1)), None)

    def _pool(self, rng: np.random.Generator, best: Array) -> Array:
        return np.concatenate(
            [
                self.sampler.everywhere(rng, NUM_EVERYWHERE),
                self.sampler.near(rng, best[:1], 300, (0.003, 0.3)),
                self.sampler.near(rng, best[:5], 400, (0.01, 0.3)),
                self.sampler.crossed(rng, best, 100),
            ]
        )
