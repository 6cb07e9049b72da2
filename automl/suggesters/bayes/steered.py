"""The default suggester within limits, with beliefs, and by the seconds: other candidates, the same surrogates."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from automl.core.budget import Budget
from automl.core.goals import Constraint, Goal
from automl.core.trial import Trial
from automl.suggesters.domain import inside
from search_spaces import Choice, Int, Space
from search_spaces.enumeration import enumerate_legal
from search_spaces.errors import SpaceError
from workers.protocol import Params

from . import BayesSuggester
from .acquisition.cost import Cost
from .acquisition.user_prior import BETA, Array, Beliefs
from .candidates import Lattice
from .design import Start
from .search import Score, Search
from .suggester import one_thread

TRIES = 32


class SteeredLattice(Lattice):
    """Points of a whole space's unit cube that lie within a narrower one.

    Args:
        space: whose codec it is; narrow: what may be tried; beliefs: from which a share of the points is drawn.
    """

    def __init__(self, space: Space, narrow: Space, beliefs: Beliefs, share: float) -> None:
        super().__init__(space)
        self.narrow, self.beliefs, self.share = narrow, beliefs, share if beliefs else 0.0
        self.low, self.high = np.zeros(len(self.parameters)), np.ones(len(self.parameters))
        for column, parameter in enumerate(self.parameters):
            self._restrict(column, narrow.parameters.get(parameter.name, parameter))
        self.fixed = np.array([c is not None and len(c) == 1 for c in self.cells], dtype=bool)

    def _restrict(self, column: int, within: Any) -> None:
        whole, centres = self.parameters[column], self.cells[column]
        if isinstance(within, Choice):
            self.cells[column] = np.array([whole.to_unit(value) for value in within.choices])
        elif isinstance(within, Int) and centres is not None:
            self.cells[column] = np.array(
                [whole.to_unit(v) for v in range(within.low, within.high + 1)]
            )
        else:
            self.low[column], self.high[column] = (
                whole.to_unit(within.low),
                whole.to_unit(within.high),
            )
            if within.low == within.high:
                self.cells[column] = np.array([self.low[column]])

    def snap(self, points: Array) -> Array:
        """The nearest points that may be tried."""
        middle = (self.low + self.high) / 2
        return super().snap(
            np.clip(np.where(np.isnan(points), middle, points), self.low, self.high)
        )

    def everywhere(self, rng: np.random.Generator, count: int) -> Array:
        """Points from all that may be tried; a share of them as they are believed in."""
        uniform = rng.random((count, self.num_parameters))
        points = self.low + uniform * (self.high - self.low)
        for column, centres in enumerate(self.cells):
            if centres is not None:
                points[:, column] = centres[(uniform[:, column] * len(centres)).astype(int)]
        believed = int(self.share * count)
        if believed:
            points[:believed] = self.beliefs.draw(rng, points[:believed])
        points = self._legal(self.snap(points))
        if len(points) < count // 4:
            drawn = self.narrow.sample(rng, min(count - len(points), 128))
            points = np.concatenate([points, self.space.encode(drawn)])
        return points


class SteeredSearch(Search):
    """Maximises a score times the belief to the power beta / n, for what it costs."""

    def __init__(self, lattice: SteeredLattice, cost: Cost | None) -> None:
        super().__init__(lattice)
        self.cost = cost
        self.narrow, self.beliefs, self.weight = lattice.narrow, lattice.beliefs, BETA

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
        """See `Search.maximise`."""
        cheaper = None if sketch is None else self._steered(sketch)
        return super().maximise(
            self._steered(score), best, taken, rng, only, sketch=cheaper, local=local
        )

    def _steered(self, score: Score) -> Score:
        if isinstance(
            score, _Steered
        ):  # the whole space is searched again, where a part of it has nothing
            return score
        return _Steered(
            self.cost.per_second(score) if self.cost else score, self.beliefs, self.weight
        )

    def first_new(
        self, pool: Array, taken: set[Hashable], rng: np.random.Generator
    ) -> Params | None:
        """The first of the candidates that may be tried and is not taken; any other where there is none."""
        for start in range(0, len(pool), 32):
            for params in self.space.decode(pool[start : start + 32]):
                if (new := self._new(params, taken)) is not None:
                    return new
        for _ in range(TRIES):
            for params in self.narrow.sample(rng, 64):
                if (new := self._new(params, taken)) is not None:
                    return new
        rest = [
            params
            for params, _ in enumerate_legal(self.narrow) or []
            if self.space.key(params) not in taken
        ]
        return rest[rng.integers(len(rest))] if rest else None

    def _new(self, params: Params, taken: set[Hashable]) -> Params | None:
        params = inside(params, self.narrow)
        return params if self.narrow.legal(params) and self.space.key(params) not in taken else None


class _Steered:
    """Log of the acquisition, and of the belief times its weight."""

    def __init__(self, score: Score, beliefs: Beliefs, weight: float) -> None:
        self.score, self.beliefs, self.weight = score, beliefs, weight

    def __call__(self, unit: Array) -> Tensor:
        value = self.score(unit)
        return (
            value + self.weight * torch.from_numpy(self.beliefs.log_density(unit))
            if self.beliefs
            else value
        )


class SteeredStart(Start):
    """Begins with what is believed in, and covers that."""

    def __init__(self, lattice: SteeredLattice, size: int) -> None:
        super().__init__(lattice, size)
        self.narrow, self.beliefs = lattice.narrow, lattice.beliefs

    def middle(self, rng: np.random.Generator) -> Params | None:
        """The values that are believed in most, everything else at its default or in the middle."""
        mode = {
            name: value
            for name, value in self.beliefs.mode().items()
            if name in self.narrow.parameters
        }
        legal = {
            name: value for name, value in mode.items() if self.narrow.parameters[name].legal(value)
        }
        try:
            return self.narrow.repair(legal, rng)
        except SpaceError:
            return None

    def overlap(self, points: Array, known: Array) -> Array:
        """How often its values were tried, less the log of the belief in it."""
        return super().overlap(points, known) - self.beliefs.log_density(points)


class SteeredBayes(BayesSuggester):
    """See `BayesSuggester`; what it learned outside of the limits still counts.

    Args:
        narrow: the part of `space` that may be tried.
        beliefs: about good values.
        budget: of the sweep; where it is one of time, a gain counts by the seconds that it takes.
    """

    def __init__(
        self,
        space: Space,
        goals: Sequence[Goal],
        constraints: Sequence[Constraint] = (),
        *,
        seed: int = 0,
        narrow: Space | None = None,
        beliefs: Beliefs | None = None,
        budget: Budget | None = None,
    ) -> None:
        super().__init__(space, goals, constraints, seed=seed)
        self.cost = Cost(space, budget, seed) if budget is not None else None
        narrow, beliefs = narrow or space, beliefs or Beliefs(space, {})
        self._steered = SteeredSearch(SteeredLattice(space, narrow, beliefs, share=0.5), self.cost)
        self.search = self._steered
        self.start = SteeredStart(
            SteeredLattice(space, narrow, beliefs, share=1.0), self.start.size
        )

    def suggest(
        self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1
    ) -> list[Params]:
        """See `Suggester.suggest`."""
        self._steered.weight = BETA / max(1, len(history))
        if self.cost is not None:
            with one_thread():
                self.cost.learn(history)
        return super().suggest(history, pending, count)
