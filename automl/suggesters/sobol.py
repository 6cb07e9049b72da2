"""Scrambled Sobol points (Owen, "Scrambling Sobol' and Niederreiter-Xing points", 1998)."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from automl.core import Trial
from workers.protocol import Params

from .base import Suggester
from .domain import new_points

_BLOCK = 256
_MAX_DRAWN = 65_536


class SobolSuggester(Suggester):
    """Walks along one scrambled sequence, past illegal and known configurations.

    The legal, distinct points of the sequence are a function of the space and the seed. A
    suggestion is the first of them that is neither in the history nor pending. Random draws follow
    if the sequence gives no more: in a small space, or one with tight constraints.
    """

    name = "sobol"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._points: dict[Hashable, Params] = {}
        self._num_drawn = 0

    def suggest(
        self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1
    ) -> list[Params]:
        seen = self.trial_keys(history, pending)
        found: list[Params] = []
        for key, params in self._sequence():
            if len(found) == count:
                return found
            if key not in seen:
                seen.add(key)
                found.append(dict(params))
        rng = np.random.default_rng([self.seed, len(history) + len(pending)])
        return found + new_points(self.space, rng, seen, count - len(found))

    def _sequence(self) -> Iterator[tuple[Hashable, Params]]:
        """The legal, distinct points with their keys: those that are known, then further blocks."""
        import torch

        yield from list(self._points.items())
        size, dimension = self.space.size, len(self.space.parameters)
        limit = _MAX_DRAWN if size is None else min(_MAX_DRAWN, 64 * size)
        while self._num_drawn < limit and len(self._points) != size:
            engine = torch.quasirandom.SobolEngine(dimension, scramble=True, seed=self.seed)  # type: ignore[no-untyped-call]
            engine.fast_forward(self._num_drawn)  # type: ignore[no-untyped-call]
            units = engine.draw(_BLOCK, dtype=torch.float64).numpy()
            legal = filter(self.space.legal, self.space.decode(units))
            block = {self.space.key(params): params for params in legal}
            fresh = [item for item in block.items() if item[0] not in self._points]
            self._points.update(fresh)
            self._num_drawn += _BLOCK
            yield from fresh
