"""Sampling of legal configurations: rejection, and enumeration of the discrete part.

Parameters that no constraint connects are sampled separately, so a hundred constraints on a hundred
pairs are as easy as one. The method for each connected part is chosen once, with a fixed seed, so
the result depends only on the caller's generator and not on earlier samples.
"""

import ast
from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np

from .conditions import with_ancestors
from .constraints import Rules
from .definition import Config, SpaceDefinition
from .errors import SpaceError
from .expressions import BoolArray, Expression
from .parameters import FloatArray, Parameter, RawArray

BATCH: Final = 4096
MIN_ACCEPTED: Final = 16  # of a batch; with fewer, rejection is too slow
MAX_BATCHES: Final = 24  # in search of a legal point
NUM_SEEDS: Final = 128
BURN_IN: Final = 8
SWEEPS: Final = 3
SHRINKS: Final = 50
HALVINGS: Final = 60
MAX_ENUMERATED: Final = 20_000
MAX_ROWS: Final = 1_000_000  # while configurations are enumerated
EXACT: Final = 2**53  # beyond, a coordinate may stand for several whole numbers


def enumerate_legal(space: SpaceDefinition) -> tuple[FloatArray, FloatArray] | None:
    """Every legal configuration of a discrete space, as coordinates, and its volume in the cube.

    Built parameter by parameter; rows are dropped as soon as a constraint fails. An inactive
    parameter has one coordinate.

    Returns:
        Arrays of shape (n, d) and (n,). None if there are more than `MAX_ENUMERATED`
        configurations, or infinitely many.
    """
    order = list(space.parameters)
    units, volumes = np.full((1, len(order)), 0.5), np.ones(1)
    raw: dict[str, RawArray] = {}
    active: dict[str, BoolArray] = {}
    for j, (name, parameter) in enumerate(space.parameters.items()):
        size = parameter.size
        if size is None or size > MAX_ENUMERATED or size * len(units) > MAX_ROWS:
            return None
        values = parameter.values()
        on = space.rules.active(name, raw, active, len(units))
        each = np.where(on, size, 1)
        rows = np.repeat(np.arange(len(units)), each)
        place = np.arange(len(rows)) - np.repeat(np.cumsum(each) - each, each)
        units, volumes, on = units[rows], volumes[rows], on[rows]
        units[on, j] = parameter.to_units(values)[place[on]]
        volumes[on] *= parameter.weights(values)[place[on]]
        decided = [c for c in space.constraints if max(map(order.index, c.names)) == j]
        kept = space.rules.hold(units, decided)
        units, volumes = units[kept], volumes[kept]
        if len(units) > MAX_ENUMERATED:
            return None
        raw = {n: p.raw(units[:, i]) for i, (n, p) in enumerate(space.parameters.items()) if i <= j}
        active = {}
        for known in raw:
            active[known] = space.rules.active(known, raw, active, len(units))
    return units, volumes


def connected_parts(space: SpaceDefinition) -> list[SpaceDefinition]:
    """The smallest sub-spaces, closed under parents, such that no constraint spans two of them."""
    groups: list[tuple[set[str], list[Expression]]] = []
    for constraint in space.constraints:
        names, rules = with_ancestors(space.parameters, constraint.names), [constraint]
        for group in [group for group in groups if group[0] & names]:
            groups.remove(group)
            names, rules = names | group[0], group[1] + rules
        groups.append((names, rules))
    return [_part(space, names, rules) for names, rules in groups]


def _part(
    space: SpaceDefinition, names: set[str], constraints: Sequence[Expression]
) -> SpaceDefinition:
    parameters = (p for name, p in space.parameters.items() if name in names)
    return SpaceDefinition(*parameters, constraints=constraints)


class Sampler:
    """Samples one connected part of a space with constraints.

    Args:
        space: the whole one.
        part: of it, closed under parents.

    Attributes:
        columns: of the part among the coordinates of the space.
    """

    def __init__(self, space: SpaceDefinition, part: SpaceDefinition) -> None:
        self.part = part
        self.columns = [list(space.parameters).index(name) for name in part.parameters]

    def draw(self, rng: np.random.Generator, count: int) -> FloatArray:
        """`count` legal points of the part; raises SpaceError if none is found."""
        if self.listed is not None:
            units, volumes = self.listed
            return units[rng.choice(len(units), size=count, p=volumes / volumes.sum())]
        if self._seeds is not None:
            points = self._seeds[rng.integers(len(self._seeds), size=count)]
            for _ in range(SWEEPS):
                points = self.slide(rng, points)
            return points
        found = np.empty((0, len(self.part)))
        size = count
        while len(found) < count:
            size = min(max(size, 16), 8 * BATCH)
            accepted = self.legal(self.proposed(rng, rng.random((size, len(self.part)))))
            found = np.concatenate([found, accepted])
            size = int(1.1 * (count - len(found)) * size / max(len(accepted), 0.5)) + 1
        return found[:count]

    def legal(self, units: FloatArray) -> FloatArray:
        """The points that satisfy the constraints."""
        units = units[self.part.feasible(units)]
        if any(p.kind == "int" and max(-p.low, p.high) > EXACT for p in self._numbers):  # type: ignore[attr-defined]
            fine = [self.part.satisfied(params) for params in self.part.decode(units)]
            units = units[np.array(fine, dtype=np.bool_)]
        return units

    def proposed(self, rng: np.random.Generator, units: FloatArray) -> FloatArray:
        """The points with a legal discrete part, and with equations solved for one number each."""
        if self._discrete is not None:
            part, (listed, volumes) = self._discrete
            picked = rng.choice(len(listed), size=len(units), p=volumes / volumes.sum())
            units = units.copy()
            units[:, part.columns] = listed[picked]
        for equation, columns in self._equations:
            units = self._solved(equation, int(rng.choice(columns)), units)
        return units

    def slide(self, rng: np.random.Generator, units: FloatArray) -> FloatArray:
        """Move each parameter of legal points in turn, by slice sampling with shrinkage.

        The target is uniform on the legal part of the cube: the first legal coordinate is accepted,
        and the interval, at first [0, 1], shrinks towards the present coordinate at each rejection
        (Neal 2003, Annals of Statistics 31). Where equations hold, a new point is proposed instead.
        """
        units = units.copy()
        if self._equations:
            moved = self.proposed(rng, _near(rng, units))
            fine = self.part.feasible(moved)
            units[fine] = moved[fine]
            return units
        for j in rng.permutation(units.shape[1]).tolist():
            start, low, high = units[:, j].copy(), np.zeros(len(units)), np.ones(len(units))
            waiting = np.arange(len(units))
            for _ in range(SHRINKS):
                width = (high - low)[waiting]
                units[waiting, j] = low[waiting] + rng.random(len(waiting)) * width
                waiting = waiting[~self.part.feasible(units[waiting])]
                if not len(waiting):
                    break
                below = units[waiting, j] < start[waiting]
                low[waiting[below]] = units[waiting[below], j]
                high[waiting[~below]] = units[waiting[~below], j]
            units[waiting, j] = start[waiting]
        return units

    @cached_property
    def listed(self) -> tuple[FloatArray, FloatArray] | None:
        """Every legal point of a small discrete part, with its volume; else None."""
        found = enumerate_legal(self.part)
        if found is not None and not len(found[0]):
            raise SpaceError(
                f"no configuration satisfies the constraints ({self._texts}), all were tried; "
                "relax one"
            )
        return found

    @cached_property
    def _numbers(self) -> list[Parameter]:
        return [p for p in self.part.parameters.values() if p.kind != "choice"]

    @cached_property
    def _discrete(self) -> "tuple[Sampler, tuple[FloatArray, FloatArray]] | None":
        """The parameters that can be enumerated, if constraints bind them among each other."""
        few = {n for n, p in self.part.parameters.items() if (p.size or EXACT) <= MAX_ENUMERATED}
        few = {n for n in few if with_ancestors(self.part.parameters, [n]) <= few}
        rules = [c for c in self.part.constraints if few.issuperset(c.names)]
        if not rules or len(few) == len(self.part):
            return None
        names = with_ancestors(self.part.parameters, [name for c in rules for name in c.names])
        inner = Sampler(self.part, _part(self.part, names, rules))
        return (inner, inner.listed) if inner.listed is not None else None

    @cached_property
    def _equations(self) -> list[tuple[Expression, list[int]]]:
        """Constraints `LEFT == RIGHT`, and the columns of the numbers that can solve each."""
        order, known = list(self.part.parameters), self._discrete
        taken = known[0].columns if known is not None else []
        found = []
        for constraint in self.part.constraints:
            tree = constraint.tree
            if isinstance(tree, ast.Compare) and [*map(type, tree.ops)] == [ast.Eq]:
                columns = [order.index(p.name) for p in self._numbers if p.name in constraint.names]
                if free := [j for j in columns if j not in taken]:
                    found.append((constraint, free))
        return found

    def _solved(self, equation: Expression, column: int, units: FloatArray) -> FloatArray:
        """The points with one coordinate moved by bisection to where both sides are equal."""
        above = _rules_for(self.part, equation.text.replace("==", ">="))
        low, high = units.copy(), units.copy()
        low[:, column], high[:, column] = 0.0, 1.0
        begins = above.hold(low)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            same = above.hold(middle) == begins
            low[same], high[~same] = middle[same], middle[~same]
        holds = self.part.rules.hold(low, [equation])
        return np.where(holds[:, None], low, high)

    @cached_property
    def _seeds(self) -> FloatArray | None:
        """Legal points, spread over a legal part that rejection misses; None if it does not."""
        rng = np.random.default_rng(0)
        shape = (BATCH, len(self.part))
        if len(self.legal(self.proposed(rng, rng.random(shape)))) >= MIN_ACCEPTED:
            return None
        found = np.empty((0, len(self.part)))
        for _ in range(MAX_BATCHES):
            corners = rng.integers(2, size=shape).astype(np.float64)
            corners[::2] = corners[::2, :1]  # half of them all low or all high
            shares = 10.0 ** rng.uniform(-6, 0, size=(BATCH, 1))
            points = corners + shares * (rng.random(shape) - corners)
            points = self.legal(self.proposed(rng, points))
            found = np.concatenate([found, points])
            if len(found) >= NUM_SEEDS:
                break
        if not len(found):
            raise SpaceError(
                f"no configuration was found that satisfies the constraints ({self._texts}); "
                "relax one"
            )
        points = found[rng.integers(len(found), size=NUM_SEEDS)]
        for _ in range(BURN_IN):
            points = self.slide(rng, points)
        return points

    @property
    def _texts(self) -> str:
        return "; ".join(map(str, self.part.constraints))


def _rules_for(part: SpaceDefinition, text: str) -> Rules:
    return Rules(part.parameters, [Expression(text)])


def _near(rng: np.random.Generator, units: FloatArray) -> FloatArray:
    """Some coordinates of each point moved by steps of any size, and reflected at the ends."""
    sizes = 10.0 ** rng.uniform(-4, 0, size=(len(units), 1))
    moved = units + rng.normal(size=units.shape) * sizes * (rng.random(units.shape) < 0.5)
    moved = np.abs(moved)
    return np.clip(np.where(moved > 1.0, 2.0 - moved, moved), 0.0, 1.0)


def neighbours(
    space: SpaceDefinition,
    samplers: Sequence[Sampler],
    params: Config,
    rng: np.random.Generator,
    count: int,
) -> list[Config]:
    """See `Space.neighbours`."""
    base = space.encode([params])[0]
    known = {space.key(params)}
    found: list[Config] = []
    for attempt in range(8):
        units = _perturbed(space, base, rng, 2 * (count - len(found)) + 4)
        if attempt:
            for sampler in samplers:
                units[:, sampler.columns] = _moved(sampler, units[:, sampler.columns], base, rng)
        units = units[space.feasible(units)] if space.constraints else units
        for candidate in _decoded(space, units, base, params):
            key = space.key(candidate)
            if key not in known and space.satisfied(candidate):
                known.add(key)
                found.append(candidate)
        if len(found) >= count:
            break
    return found[:count]


def _moved(
    sampler: Sampler, units: FloatArray, base: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Points of a part; those that break its constraints are replaced by legal ones near the base.

    A part that is inactive in the base has NaN there.
    """
    bad = ~sampler.part.feasible(units)
    centre = base[sampler.columns]
    if not bad.any():
        return units
    count = int(bad.sum())
    if sampler.listed is not None:
        listed = sampler.listed[0]
        order = _nearest_first(listed, np.where(np.isnan(centre), 0.5, centre), rng)
        units[bad] = listed[order[rng.integers(min(len(order), 4 * count), size=count)]]
    else:
        start = np.where(np.isnan(centre), rng.random((count, len(centre))), centre)
        units[bad] = sampler.slide(rng, start) if sampler.part.feasible(start).all() else start
    return units


def _nearest_first(points: FloatArray, centre: FloatArray, rng: np.random.Generator) -> RawArray:
    """The order of points by the number of other coordinates, then by distance; ties at random."""
    apart = np.abs(points - centre)
    return np.lexsort((rng.random(len(points)), apart.sum(axis=1), (apart > 1e-12).sum(axis=1)))


def _decoded(
    space: SpaceDefinition, units: FloatArray, base: FloatArray, params: Config
) -> list[Config]:
    """Decode coordinates; an unchanged coordinate keeps the value of `params`, unrounded."""
    found = space.decode(units)
    for candidate, row in zip(found, (units == base).tolist(), strict=True):
        kept = zip(space.parameters, row, strict=True)
        candidate.update({n: params[n] for n, same in kept if same and n in candidate})
    return found


def _perturbed(
    space: SpaceDefinition, base: FloatArray, rng: np.random.Generator, count: int
) -> FloatArray:
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
    space: SpaceDefinition, samplers: Sequence[Sampler], params: Config, rng: np.random.Generator
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
        for j in rng.permutation(len(centre)).tolist() if sampler.listed is None else ():
            for share in (1.0, 0.5, 0.25):
                trial = point.copy()
                trial[j] += share * (centre[j] - point[j])
                if sampler.part.feasible(trial[None]).all():
                    point = trial
                    break
        units[sampler.columns] = point
    (candidate,) = _decoded(space, units[None], base, params)
    return candidate if space.satisfied(candidate) else None
