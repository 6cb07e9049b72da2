"""Sampling of legal configurations: rejection, and enumeration of discrete parts.

Parameters that no constraint connects are sampled separately, so a hundred constraints on a hundred
pairs are as easy as one. The method for each connected part is chosen once, with a fixed seed, so
the result depends only on the caller's generator and not on earlier samples.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, cast

import numpy as np

from .expressions import Expression
from .parameters import Choice, FloatArray, RawArray, reflected
from .values import Value, check

Config = dict[str, Value]
Space = Any  # of `space`, which imports this module

BATCH: Final = 4096
MIN_ACCEPTED: Final = 4  # of a batch; with fewer, rejection is too slow
MAX_BATCHES: Final = 24  # in search of a legal point
NUM_SEEDS: Final = 128
BURN_IN: Final = 8
SWEEPS: Final = 3
SHRINKS: Final = 50
HALVINGS: Final = 60
SHARES: Final = (1.0, 0.5, 0.25)  # of the way back to a coordinate
MAX_ENUMERATED: Final = 20_000
MAX_ROWS: Final = 1_000_000  # while configurations are enumerated


def enumerate_legal(space: Space) -> tuple[FloatArray, FloatArray] | None:
    """Every legal configuration of a discrete space, as coordinates, and its volume in the cube.

    Built parameter by parameter; rows are dropped as soon as a constraint fails. An inactive
    parameter has one coordinate.

    Returns:
        Arrays of shape (n, d) and (n,). None if there are more than `MAX_ENUMERATED`
        configurations, or infinitely many.
    """
    order = list(space.parameters)
    units, volumes = np.full((1, len(order)), 0.5), np.ones(1)
    for j, (name, parameter) in enumerate(space.parameters.items()):
        size = parameter.size
        if size is None or size > MAX_ENUMERATED or size * len(units) > MAX_ROWS:
            return None
        values, on = parameter.values(), space.where_active(units)[name]
        rows = np.repeat(np.arange(len(units)), np.where(on, size, 1))
        place = np.arange(len(rows)) - np.searchsorted(rows, rows)
        units, volumes, on = units[rows], volumes[rows], on[rows]
        units[on, j] = parameter.to_units(values)[place[on]]
        volumes[on] *= parameter.weights(values)[place[on]]
        kept = space.feasible(
            units, [c for c in space.constraints if max(map(order.index, c.names)) == j]
        )
        units, volumes = units[kept], volumes[kept]
        if len(units) > MAX_ENUMERATED:
            return None
    return units, volumes


def connected_parts(space: Space) -> list[Space]:
    """The smallest sub-spaces, closed under parents, such that no constraint spans two of them."""
    groups: list[tuple[set[str], list[Expression]]] = []
    for constraint in space.constraints:
        names, rules = set(constraint.names), [constraint]
        for name in reversed(space.parameters):  # children before their parents
            names |= space.parameters[name].when.keys() if name in names else set()
        for group in [group for group in groups if group[0] & names]:
            groups.remove(group)
            names, rules = names | group[0], group[1] + rules
        groups.append((names, rules))
    return [
        type(space)(*(p for n, p in space.parameters.items() if n in names), constraints=rules)
        for names, rules in groups
    ]


class Sampler:
    """Samples one connected part of a space with constraints.

    Args:
        space: the whole one.
        part: of it, closed under parents.

    Attributes:
        columns: of the part among the coordinates of the space.
    """

    def __init__(self, space: Space, part: Space) -> None:
        self.part = part
        order = list(space.parameters)
        self.columns = np.array([order.index(name) for name in part.parameters])

    def draw(self, rng: np.random.Generator, count: int) -> FloatArray:
        """`count` legal points of the part; raises SpaceError if none is found."""
        if self.listed is not None:
            units, volumes = self.listed
            return units[rng.choice(len(units), size=count, p=volumes / volumes.sum())]
        if self._seeds is not None:
            points = self._seeds[rng.integers(len(self._seeds), size=count)]
            return self._slid(rng, points, SWEEPS)
        found = np.empty((0, len(self.part)))
        size = max(count, 16)
        while len(found) < count:
            accepted = self._legal(rng, rng.random((size, len(self.part))))
            found = np.concatenate([found, accepted])
            size = min(4 * size, 8 * BATCH)
        return found[:count]

    def near(self, rng: np.random.Generator, centre: FloatArray, count: int) -> FloatArray:
        """Up to `count` legal points near one, which has NaN for what is inactive there."""
        if self.listed is not None:
            order = _nearest_first(self.listed[0], np.nan_to_num(centre, nan=0.5), rng)
            picked: RawArray = order[rng.integers(min(len(order), 4 * count), size=count)]
            return self.listed[0][picked]
        rows = np.where(np.isnan(centre), rng.random((4 * count, len(centre))), centre)
        sizes = 10.0 ** rng.uniform(-4, 0, size=(len(rows), 1))
        moved = rows + rng.normal(size=rows.shape) * sizes * (rng.random(rows.shape) < 0.5)
        return self._legal(rng, reflected(moved))[:count]

    def _legal(self, rng: np.random.Generator, units: FloatArray) -> FloatArray:
        """The legal ones of the points, after equations are solved."""
        for equation, columns in self._equations:
            units = self._solved(equation, int(rng.choice(columns)), units)
        return cast(FloatArray, units[self.part.feasible(units)])

    def _slid(self, rng: np.random.Generator, units: FloatArray, sweeps: int) -> FloatArray:
        """Move each parameter of legal points in turn, by slice sampling with shrinkage.

        The target is uniform on the legal part of the cube: the first legal coordinate is accepted,
        and the interval, at first [0, 1], shrinks towards the present coordinate at each rejection
        (Neal 2003, Annals of Statistics 31). Points that solve equations stay where they are.
        """
        for j in [] if self._equations else sweeps * rng.permutation(units.shape[1]).tolist():
            start, low, high = units[:, j].copy(), np.zeros(len(units)), np.ones(len(units))
            waiting = np.arange(len(units))
            for _ in range(SHRINKS):
                width = (high - low)[waiting]
                units[waiting, j] = low[waiting] + rng.random(len(waiting)) * width
                waiting = waiting[~self.part.feasible(units[waiting])]
                below = units[waiting, j] < start[waiting]
                low[waiting[below]] = units[waiting[below], j]
                high[waiting[~below]] = units[waiting[~below], j]
            units[waiting, j] = start[waiting]
        return units

    @cached_property
    def listed(self) -> tuple[FloatArray, FloatArray] | None:
        """Every legal point of a small discrete part, with its volume; else None."""
        found = enumerate_legal(self.part)
        self._check_found(found is None or len(found[0]), "all were tried")
        return found

    @cached_property
    def _equations(self) -> list[tuple[Expression, list[int]]]:
        """Constraints `LEFT == RIGHT`, and the columns of the numbers that can solve each."""
        parameters = list(self.part.parameters.values())
        free = {p.name: j for j, p in enumerate(parameters) if not isinstance(p, Choice)}
        return [
            (constraint, [free[name] for name in constraint.names if name in free])
            for constraint in self.part.constraints
            if isinstance(constraint.tree, ast.Compare) and free.keys() & constraint.names
            if [type(op) for op in constraint.tree.ops] == [ast.Eq]
        ]

    def _solved(self, equation: Expression, column: int, units: FloatArray) -> FloatArray:
        """The points with one coordinate moved by bisection to where both sides are equal."""
        above = [Expression(equation.text.replace("==", ">="))]
        low, high = units.copy(), units.copy()
        low[:, column], high[:, column] = 0.0, 1.0
        begins = self.part.feasible(low, above)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            same = self.part.feasible(middle, above) == begins
            low[same], high[~same] = middle[same], middle[~same]
        return np.where(self.part.feasible(low, [equation])[:, None], low, high)

    @cached_property
    def _seeds(self) -> FloatArray | None:
        """Legal points of a part that rejection misses, found near corners; None if it does not."""
        rng = np.random.default_rng(0)
        shape = (BATCH, len(self.part))
        if len(self._legal(rng, rng.random(shape))) >= MIN_ACCEPTED:
            return None
        found = []
        for _ in range(MAX_BATCHES):
            corners = rng.integers(2, size=shape).astype(np.float64)
            corners[::2] = corners[::2, :1]  # half of them all low or all high
            shares = 10.0 ** rng.uniform(-6, 0, size=(BATCH, 1))
            found += [*self._legal(rng, corners + shares * (rng.random(shape) - corners))]
        self._check_found(found, "many were tried")
        picked = rng.integers(len(found), size=NUM_SEEDS)
        return self._slid(rng, np.array(found)[picked], BURN_IN)

    def _check_found(self, found: Any, tried: str) -> None:
        texts = "; ".join(map(str, self.part.constraints))
        check(found, f"no configuration satisfies the constraints ({texts}), {tried}; relax one")


def neighbours(
    space: Space,
    samplers: Sequence[Sampler],
    params: Config,
    rng: np.random.Generator,
    count: int,
) -> list[Config]:
    """See `Space.neighbours`."""
    base = space.encode([params])[0]
    found = {space.key(params): params}
    for attempt in range(8):
        units = _perturbed(space, base, rng, 2 * (count + 1 - len(found)) + 4)
        for sampler in samplers if attempt else ():
            bad = np.flatnonzero(~sampler.part.feasible(units[:, sampler.columns]))
            points = sampler.near(rng, base[sampler.columns], len(bad))
            units[bad[: len(points), None], sampler.columns] = points
        units = units[space.feasible(units)]
        for candidate in _decoded(space, units, base, params):
            if space.satisfied(candidate):
                found.setdefault(space.key(candidate), candidate)
        if len(found) > count:
            break
    return list(found.values())[1 : count + 1]


def _nearest_first(points: FloatArray, centre: FloatArray, rng: np.random.Generator) -> RawArray:
    """The order of points by the number of other coordinates, then by distance; ties at random."""
    apart = np.abs(points - centre)
    return np.lexsort((rng.random(len(points)), apart.sum(axis=1), (apart > 1e-12).sum(axis=1)))


def _decoded(space: Space, units: FloatArray, base: FloatArray, params: Config) -> list[Config]:
    """Decode coordinates; an unchanged coordinate keeps the value of `params`, unrounded."""
    found: list[Config] = space.decode(units)
    for candidate, row in zip(found, (units == base).tolist(), strict=True):
        kept = zip(space.parameters, row, strict=True)
        candidate.update({n: params[n] for n, same in kept if same and n in candidate})
    return found


def _perturbed(space: Space, base: FloatArray, rng: np.random.Generator, count: int) -> FloatArray:
    """Coordinates (count, d): one or two active ones of `base` changed, inactive ones random."""
    rows = np.where(np.isnan(base), rng.random((count, len(base))), base)
    parameters = list(space.parameters.values())
    movable = [j for j in np.flatnonzero(~np.isnan(base)).tolist() if parameters[j].size != 1]
    if not movable:
        return rows
    first = rng.choice(movable, size=count)
    second = np.where(rng.random(count) < 0.3, rng.choice(movable, size=count), -1)
    for j in movable:
        moved = np.flatnonzero((first == j) | (second == j))
        rows[moved, j] = parameters[j].perturb(rows[moved, j], rng)
    return rows


def repaired(
    space: Space, samplers: Sequence[Sampler], params: Config, rng: np.random.Generator
) -> Config | None:
    """A legal configuration near one that breaks constraints; None if none was found.

    The nearest of the enumerated ones, or of many samples whose coordinates then go back to the
    given ones, one by one, as far as the constraints hold.
    """
    base = space.encode([params])[0]
    units = np.where(np.isnan(base), rng.random(len(base)), base)
    for sampler in samplers:
        centre = units[sampler.columns]
        if sampler.part.feasible(centre[None]).all():
            continue
        points = sampler.listed[0] if sampler.listed is not None else sampler.draw(rng, NUM_SEEDS)
        point = points[_nearest_first(points, centre, rng)[0]].copy()
        for j, share in itertools.product(rng.permutation(len(centre)).tolist(), SHARES):
            moved = point.copy()
            moved[j] += share * (centre[j] - point[j])
            point = moved if sampler.part.feasible(moved[None]).all() else point
        units[sampler.columns] = point
    (candidate,) = _decoded(space, units[None], base, params)
    return candidate if space.satisfied(candidate) else None
