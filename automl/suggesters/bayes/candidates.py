"""Candidate configurations as unit-cube arrays, NaN where inactive: everywhere, near good ones, and crossings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from search_spaces import Choice, Float, Int, Space
from search_spaces.parameters import Parameter

Array = NDArray[np.float64]
MOST_SAMPLED = 128  # of the configurations that are drawn one by one
MAX_CELLS = 4096  # integers with more values are treated as continuous until they are decoded


class Lattice:
    """Snaps unit-cube points to the values that exist, and knows which parameters are active, for whole arrays.

    Args:
        space: parameters in its order, parents first.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self.parameters = list(space.parameters.values())
        self.names = list(space.parameters)
        self.cells: list[Array | None] = [self._centres(p) for p in self.parameters]
        self.unordered = np.array(
            [isinstance(p, Choice) and not p.ordered for p in self.parameters], dtype=bool
        )
        self.fixed = np.array([c is not None and len(c) == 1 for c in self.cells], dtype=bool)
        self.rules = [self._rule(p) for p in self.parameters]
        self.conditional = any(self.rules)

    @property
    def num_parameters(self) -> int:
        """Number of columns."""
        return len(self.parameters)

    @staticmethod
    def _centres(parameter: Parameter) -> Array | None:
        if isinstance(parameter, Float):
            return np.array([0.5]) if parameter.low == parameter.high else None
        values: Sequence[bool | int | float | str]
        if isinstance(parameter, Choice):
            values = parameter.choices
        elif isinstance(parameter, Int) and parameter.high - parameter.low < MAX_CELLS:
            values = range(parameter.low, parameter.high + 1)
        else:
            return None
        return np.array([parameter.to_unit(v) for v in values])

    def _rule(self, parameter: Parameter) -> list[tuple[int, Array]]:
        """(column of the parent, its admissible unit values) for every parent; all must hold."""
        rules = []
        for parent, values in parameter.when.items():
            of = self.space.parameters[parent]
            rules.append((self.names.index(parent), np.array([of.to_unit(v) for v in values])))
        return rules

    def snap(self, points: Array) -> Array:
        """The nearest existing points, with NaN where a parameter is not active; NaN of an active one is the middle."""
        points = np.clip(np.where(np.isnan(points), 0.5, points), 0.0, 1.0)
        for column, centres in enumerate(self.cells):
            if centres is not None:
                edges = (centres[1:] + centres[:-1]) / 2
                points[:, column] = centres[np.searchsorted(edges, points[:, column], side="right")]
            for parent, admissible in self.rules[column]:
                close = (
                    np.abs(points[:, parent, None] - admissible) < 1e-9
                )  # False for an inactive parent: NaN
                points[~close.any(1), column] = np.nan
        return points

    def everywhere(self, rng: np.random.Generator, count: int) -> Array:
        """Uniform points; fewer where the space has constraints that most of them break."""
        points = self._legal(self.snap(rng.random((count, self.num_parameters))))
        if len(points) < count // 4:
            drawn = self.space.sample(rng, min(count - len(points), MOST_SAMPLED))
            points = np.concatenate([points, self.space.encode(drawn)])
        return points

    def _legal(self, points: Array) -> Array:
        return points[self.space.feasible(points)] if self.space.constraints else points

    def near(
        self, rng: np.random.Generator, bases: Array, count: int, scales: tuple[float, float]
    ) -> Array:
        """Perturbations of legal `bases` (`b x d`): some coordinates moved, by log-uniform steps within `scales`."""
        points = self._legal(self._perturbed(rng, bases, count, scales))
        if len(points) < count // 8:
            each = max(count // 8 // len(bases), 1)
            for params in self.space.decode(bases):
                moved = self.space.neighbours(params, rng, each)
                points = np.concatenate([points, self.space.encode(moved)]) if moved else points
        return points

    def _perturbed(
        self, rng: np.random.Generator, bases: Array, count: int, scales: tuple[float, float]
    ) -> Array:
        d = self.num_parameters
        base = bases[rng.integers(len(bases), size=count)]
        filled = np.where(np.isnan(base), rng.random((count, d)), base)
        rate = (
            rng.choice([1.0 / d, 2.0 / d, 0.5, 1.0], size=(count, 1))
            if d > 1
            else np.ones((count, 1))
        )
        moved = (rng.random((count, d)) < rate) & ~self.fixed
        moved[np.arange(count), rng.integers(d, size=count)] = True
        size = np.exp(rng.uniform(np.log(scales[0]), np.log(scales[1]), size=(count, 1)))
        step = rng.standard_normal((count, d)) * size
        for column, centres in enumerate(self.cells):
            if centres is not None and len(centres) > 1:  # at least to the next value
                least = 1.0 / len(centres)
                step[:, column] = np.sign(step[:, column]) * np.maximum(
                    np.abs(step[:, column]), least
                )
        value = np.abs(filled + step)
        value = np.where(value > 1.0, 2.0 - value, value)
        resample = self.unordered & (rng.random((count, d)) < 0.7)
        value = np.where(self.unordered, np.where(resample, rng.random((count, d)), filled), value)
        return self.snap(np.where(moved, value, filled))

    def forced(self, rng: np.random.Generator, points: Array, column: int, value: float) -> Array:
        """The points with one parameter set, what becomes active with it drawn; those that stay legal."""
        points = np.where(np.isnan(points), rng.random(points.shape), points)
        waiting = [(column, value)]
        while waiting:
            column, value = waiting.pop()
            points[:, column] = value
            waiting += [
                (parent, float(rng.choice(admissible))) for parent, admissible in self.rules[column]
            ]
        return self._legal(self.snap(points))

    def branches(self) -> list[tuple[int, float]]:
        """Column and unit value of every option of the unordered choices, binary ones left out: of an ordered one the
        neighbours of an option tell about it."""
        listed = [
            (j, c)
            for j in np.flatnonzero(self.unordered)
            if (c := self.cells[j]) is not None and len(c) > 2
        ]
        return [(int(j), float(value)) for j, centres in listed for value in centres]

    def crossed(self, rng: np.random.Generator, bases: Array, count: int) -> Array:
        """Each coordinate from one of two of the `bases`."""
        first, second = (bases[rng.integers(len(bases), size=count)] for _ in range(2))
        mixed = np.where(rng.random(first.shape) < 0.5, first, second)
        other = np.where(np.isnan(first), second, first)
        mixed = np.where(np.isnan(mixed), other, mixed)
        return self._legal(self.snap(np.where(np.isnan(mixed), rng.random(first.shape), mixed)))
