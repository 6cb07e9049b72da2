"""Candidate configurations as unit-cube arrays: everywhere, near good ones, mixed."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from automl.suggesters.domain import Domain
from automl.suggesters.knowledge import InformedPrior
from automl.suggesters.user_prior import UserPrior
from search_spaces import Choice, Float, Int
from search_spaces.parameters import Parameter, Value
from workers.protocol import Params

Array = NDArray[np.float64]
MAX_SAMPLED = 128  # configurations drawn one by one
MAX_CELLS = 4096  # integers with more values are continuous until they are decoded
PRIOR_SHARE = 0.5  # of the points everywhere that are drawn from the user's prior
SAME = 1e-9  # unit values that are closer are equal


class CandidateSampler:
    """Draws candidates within a domain, whole arrays at once.

    Points are in the unit cube of the whole space. They are snapped to values that exist, and to
    NaN if a parameter is inactive.

    Args:
        domain: what may be proposed.
        prior: where good values probably are, if the user has said so.
    """

    def __init__(
        self, domain: Domain, prior: UserPrior | InformedPrior | None = None, *, ends: bool = False
    ) -> None:
        self.domain = domain
        self.ends = ends
        self.prior = prior or UserPrior(domain.space, {})
        self.space = domain.space
        self.parameters = list(self.space.parameters.values())
        names = list(self.space.parameters)
        limited = [domain.inner.parameters.get(p.name, p) for p in self.parameters]
        self.low = np.zeros(len(names))
        self.high = np.ones(len(names))
        self.cells: list[Array | None] = []
        self.rules: list[list[tuple[int, Array]]] = []  # (column of a parent, admissible values)
        for column, (whole, part) in enumerate(zip(self.parameters, limited, strict=True)):
            self.cells.append(_cells(whole, part))
            if part is not whole and not isinstance(part, Choice):
                self.low[column], self.high[column] = _range(whole, part)
            self.rules.append(
                [
                    (names.index(parent), _units(self.space.parameters[parent], values))
                    for parent, values in part.when.items()
                ]
            )
        self.unordered = np.array(
            [isinstance(p, Choice) and not p.ordered for p in self.parameters], dtype=bool
        )
        self.fixed = np.array([c is not None and len(c) == 1 for c in self.cells], dtype=bool)

    def snap(self, points: Array) -> Array:
        """The nearest points that may be tried; NaN of an active parameter becomes its middle."""
        middle = (self.low + self.high) / 2
        points = np.clip(np.where(np.isnan(points), middle, points), self.low, self.high)
        for column, centres in enumerate(self.cells):
            if centres is not None:
                edges = (centres[1:] + centres[:-1]) / 2
                points[:, column] = centres[np.searchsorted(edges, points[:, column], side="right")]
            for parent, admissible in self.rules[column]:
                close = np.abs(points[:, parent, None] - admissible) < SAME  # false for NaN
                points[~close.any(1), column] = np.nan
        return points

    def middle(self, rng: np.random.Generator) -> Params | None:
        """Every parameter at its prior's mode, its default or its middle; None if not legal."""
        return self.domain.repair(self.prior.mode(), rng)

    def everywhere(
        self,
        rng: np.random.Generator,
        count: int,
        *,
        prior_share: float = PRIOR_SHARE,
        margin: float = 0.0,
    ) -> Array:
        """Uniform points, a share of them from the prior; fewer if constraints exclude most.

        Args:
            margin: part of each number's range that is left out at either end.
        """
        points = rng.random((count, len(self.parameters)))
        if margin:
            points = np.where(self.unordered, points, margin + (1 - 2 * margin) * points)
        points = self.low + points * (self.high - self.low)
        if self.ends and not margin:
            self._put_at_ends(rng, points[count // 2 :])
        from_prior = int(prior_share * count) if self.prior else 0
        if from_prior:
            points[:from_prior] = self.prior.draw(rng, points[:from_prior])
        points = self._legal(self.snap(points))
        if len(points) < count // 4:
            drawn = self.domain.inner.sample(rng, min(count - len(points), MAX_SAMPLED))
            points = np.concatenate([points, self.space.encode(drawn)])
        return points

    def _put_at_ends(self, rng: np.random.Generator, points: Array) -> None:
        """Move some numbers of each point to an end of their range, in place."""
        d = points.shape[1]
        rate = rng.choice([1.0 / d, 2.0 / d, 0.5], size=(len(points), 1))
        moved = (rng.random(points.shape) < rate) & ~self.unordered
        end = np.where(rng.random(points.shape) < 0.5, self.low, self.high)
        points[moved] = end[moved]

    def _legal(self, points: Array) -> Array:
        return points[self.domain.feasible(points)] if self.domain.constrained else points

    def near(
        self, rng: np.random.Generator, bases: Array, count: int, scales: tuple[float, float]
    ) -> Array:
        """Perturbations of legal `bases` (`b x d`): some coordinates move by log-uniform steps.

        Args:
            scales: smallest and largest step.
        """
        points = self._legal(self._perturbed(rng, bases, count, scales))
        if len(points) < count // 8:
            each = max(count // 8 // len(bases), 1)
            for params in self.space.decode(self.snap(bases)):
                moved = self.domain.neighbours(params, rng, each)
                points = np.concatenate([points, self.space.encode(moved)]) if moved else points
        return points

    def _perturbed(
        self, rng: np.random.Generator, bases: Array, count: int, scales: tuple[float, float]
    ) -> Array:
        d = len(self.parameters)
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
                least = np.maximum(np.abs(step[:, column]), 1.0 / len(centres))
                step[:, column] = np.sign(step[:, column]) * least
        value = filled + step
        if self.ends:  # half of the points stop at the ends, the others are reflected
            stopped = rng.random((count, 1)) < 0.5
            value = np.where(stopped, np.clip(value, 0.0, 1.0), value)
        value = np.abs(value)
        value = np.where(value > 1.0, 2.0 - value, value)
        resample = self.unordered & (rng.random((count, d)) < 0.7)
        value = np.where(self.unordered, np.where(resample, rng.random((count, d)), filled), value)
        return self.snap(np.where(moved, value, filled))

    def forced(self, rng: np.random.Generator, points: Array, column: int, value: float) -> Array:
        """The points with one parameter set, and newly active parameters drawn, if still legal.

        Args:
            points: `m x d`.
            column: of the parameter.
            value: its unit value.
        """
        points = np.where(np.isnan(points), rng.random(points.shape), points)
        waiting = [(column, value)]
        while waiting:
            column, value = waiting.pop()
            points[:, column] = value
            waiting += [
                (parent, float(rng.choice(admissible))) for parent, admissible in self.rules[column]
            ]
        return self._legal(self.snap(points))

    def options(self) -> list[tuple[int, float]]:
        """Column and unit value of every option of the unordered choices with at least three.

        Fewer options, or ordered ones, are explored well enough by the surrogate.
        """
        listed = [
            (int(j), cells)
            for j in np.flatnonzero(self.unordered)
            if (cells := self.cells[j]) is not None
            and len(cells) > 2
            and self.parameters[j].name in self.domain.inner.parameters
        ]
        return [(column, float(value)) for column, cells in listed for value in cells]

    def crossed(self, rng: np.random.Generator, bases: Array, count: int) -> Array:
        """`count` points, each coordinate from one of two of the `bases`."""
        first, second = (bases[rng.integers(len(bases), size=count)] for _ in range(2))
        mixed = np.where(rng.random(first.shape) < 0.5, first, second)
        other = np.where(np.isnan(first), second, first)
        mixed = np.where(np.isnan(mixed), other, mixed)
        return self._legal(self.snap(np.where(np.isnan(mixed), rng.random(first.shape), mixed)))


def _units(parameter: Parameter, values: Iterable[Value]) -> Array:
    return np.array([parameter.to_unit(value) for value in values])


def _cells(whole: Parameter, part: Parameter) -> Array | None:
    """Unit values of everything that a part of a parameter can be; None if it is continuous."""
    if isinstance(part, Choice):
        return _units(whole, part.choices)
    if part.size == 1 or (part.size and max(part.size, whole.size or 0) <= MAX_CELLS):
        return _units(whole, part.values())
    return None


def _range(whole: Parameter, part: Parameter) -> tuple[float, float]:
    """The unit interval of a number within limits."""
    assert isinstance(whole, Float | Int)
    assert isinstance(part, Float | Int)
    inner = _units(whole, (part.low, part.high))
    if whole.step is not None:
        below = whole.to_unit(part.low - whole.step) if part.low > whole.low else -inner[0]
        above = whole.to_unit(part.high + whole.step) if part.high < whole.high else 2 - inner[1]
        return (inner[0] + below) / 2, (inner[1] + above) / 2
    return inner[0], inner[1]
