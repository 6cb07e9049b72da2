"""Scrambled Sobol points (Owen, "Scrambling Sobol' and Niederreiter-Xing points", 1998)."""

from collections.abc import Hashable, Sequence

import numpy as np

from automl.core import Constraint, Goal, Trial
from search_spaces import Space
from workers.protocol import Params

from ._new_points import new_points
from .base import Suggester

_BLOCK = 256
_MAX_DRAWN = 65_536


class SobolSuggester(Suggester):
    """Walks along one scrambled sequence, past illegal and known configurations.

    The legal, distinct points of the sequence are a function of the space and the seed. A
    suggestion is the first of them that is neither in the history nor pending. Random draws follow
    if the sequence gives no more: in a small space, or one with tight constraints.
    """

    name = "sobol"

    def __init__(
        self,
        space: Space,
        goals: Sequence[Goal],
        constraints: Sequence[Constraint] = (),
        *,
        seed: int = 0,
    ) -> None:
        super().__init__(space, goals, constraints, seed=seed)
        self._points: dict[Hashable, Params] = {}
        self._num_drawn = 0

    def suggest(
        self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1
    ) -> list[Params]:
        seen = self.trial_keys(history, pending)
        found: list[Params] = []
        position = 0
        while len(found) < count and (
            position < len(self._points) or self._draw(len(seen) + count)
        ):
            fresh = list(self._points.items())[position:]
            found += [params for key, params in fresh if key not in seen]
            position += len(fresh)
        found = found[:count]
        if len(found) < count:
            rng = np.random.default_rng([self.seed, len(history) + len(pending)])
            met = seen | {self.space.key(params) for params in found}
            found += new_points(self.space, rng, met, count - len(found))
        return [dict(params) for params in found]

    def _draw(self, wanted: int) -> bool:
        """Decode the next block of the sequence; False if the sequence is given up.

        That is after `_MAX_DRAWN` points, earlier if the space is finite and small.
        """
        size = self.space.size
        limit = _MAX_DRAWN if size is None else min(_MAX_DRAWN, 64 * size)
        if self._num_drawn >= max(limit, 4 * wanted) or (
            size is not None and len(self._points) >= size
        ):
            return False
        for params in self.space.decode(
            _sobol(len(self.space.parameters), self.seed, self._num_drawn, _BLOCK)
        ):
            if self.space.legal(params):
                self._points.setdefault(self.space.key(params), params)
        self._num_drawn += _BLOCK
        return True


def _sobol(dimension: int, seed: int, start: int, count: int) -> np.ndarray:
    """`count` points of the scrambled sequence from `start` on, `count x dimension` in [0, 1]."""
    import torch

    engine = torch.quasirandom.SobolEngine(dimension, scramble=True, seed=seed)  # type: ignore[no-untyped-call]
    if start:
        engine.fast_forward(start)  # type: ignore[no-untyped-call]
    points: np.ndarray = engine.draw(count, dtype=torch.float64).numpy()
    return points
