"""Maximising a score over a mixed, conditional, constrained space."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np
from torch import Tensor

from automl.suggesters._draws import new_points
from workers.protocol import Params

from .candidates import Lattice
from .model.data import Array

Score = Callable[[Array], Tensor]
NUM_EVERYWHERE = 800
NUM_CLOSER = 300
NUM_COPIES = 10  # of each good configuration, for what becomes active with a choice
WORTHLESS = (
    -300.0
)  # score below which a parameter is not held: nothing is gained, or it is likely to fail
REFINEMENTS = ((0.01, 0.2), (0.003, 0.05), (0.001, 0.02))


class Search:
    """Candidates from everywhere and near the best, then rounds of perturbing those that score best."""

    def __init__(self, lattice: Lattice) -> None:
        self.lattice, self.space = lattice, lattice.space

    def maximise(
        self,
        score: Score,
        best: Array,
        taken: set[Hashable],
        rng: np.random.Generator,
        only: tuple[int, float] | None = None,
        *,
        sketch: Score | None = None,
        local: bool = False,
    ) -> Params | None:
        """The legal configuration not `taken` with the highest score found; None where the space has no other, or where
        nothing is gained with the parameter that is held.

        Args:
            best: configurations worth looking around, the best first.
            only: column and unit value of a parameter that is held; local: whether to stay near the best.
            sketch: a cheaper score, by which most candidates are left out at once.
        """
        pool = (
            self.lattice.near(rng, best[:1], 600, (0.003, 0.1)) if local else self._pool(rng, best)
        )
        if (
            only is not None
        ):  # with the rest as in good ones: elsewhere it would be blamed for what others do
            pool = np.concatenate(
                [self.lattice.near(rng, best[:n], 300, (0.003, 0.3)) for n in (1, 5)]
            )
            pool = self.lattice.forced(rng, pool, *only)
            if not len(pool):
                return None
        if sketch is not None:
            pool = pool[np.argsort(-sketch(pool).numpy(), kind="stable")[:NUM_CLOSER]]
        values = score(pool).numpy()
        if only is not None and values.max() < WORTHLESS:
            return None
        for scales in REFINEMENTS:
            top = pool[np.argsort(-values, kind="stable")[:4]]
            more = self.lattice.near(rng, top, 150, scales)
            if only is not None:
                more = more[more[:, only[0]] == only[1]]
            pool, values = (
                np.concatenate([pool, more]),
                np.concatenate([values, score(more).numpy()]),
            )
        return self.first_new(pool[np.argsort(-values, kind="stable")], taken, rng)

    def changed(
        self,
        score: Score,
        best: Array,
        taken: set[Hashable],
        rng: np.random.Generator,
        only: tuple[int, float],
    ) -> Params | None:
        """The most promising of the `best` with one parameter changed and nothing else but what exists with it, so that
        the trial tells about that one; None where nothing is gained by it."""
        pool = self.lattice.forced(rng, np.repeat(best, NUM_COPIES, axis=0), *only)
        values = score(pool).numpy() if len(pool) else np.empty(0)
        order = np.argsort(-values, kind="stable")
        decoded = self.space.decode(pool[order[values[order] > WORTHLESS]])
        return next(
            (new for params in decoded if (new := self._new(params, taken)) is not None), None
        )

    def _pool(self, rng: np.random.Generator, best: Array) -> Array:
        return np.concatenate(
            [
                self.lattice.everywhere(rng, NUM_EVERYWHERE),
                self.lattice.near(rng, best[:1], 300, (0.003, 0.3)),
                self.lattice.near(rng, best[:5], 400, (0.01, 0.3)),
                self.lattice.crossed(rng, best, 100),
            ]
        )

    def first_new(
        self, pool: Array, taken: set[Hashable], rng: np.random.Generator
    ) -> Params | None:
        """The first of the candidates that is legal and not taken; any other where there is none."""
        for start in range(0, len(pool), 32):
            for params in self.space.decode(pool[start : start + 32]):
                if (new := self._new(params, taken)) is not None:
                    return new
        return next(iter(new_points(self.space, rng, taken, 1)), None)

    def _new(self, params: Params, taken: set[Hashable]) -> Params | None:
        """The configuration where it is legal and not taken."""
        return params if self.space.key(params) not in taken and self.space.legal(params) else None
