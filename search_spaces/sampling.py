"""Sampling of legal configurations: by rejection, by enumeration, or by a walk.

Parameters that no constraint connects are sampled separately, so a hundred constraints on a hundred
pairs are as easy as one. The method for each connected part is chosen once, with a fixed seed, so
the result depends only on the caller's generator and not on earlier samples.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, cast

import numpy as np

from .conditions import with_ancestors
from .constraints import BoolArray, ConstraintEvaluator
from .definition import Config, SpaceDefinition
from .errors import SpaceError
from .expressions import Expression
from .parameters import FloatArray, Parameter, RawArray

NUM_CANDIDATES: Final = 48
SHRINKS: Final = 50
CHUNK: Final = 1024
_STEPS: Final = 0.5 ** np.arange(1, 19)


@dataclass(frozen=True)
class Walker:
    """Moves many points of the unit cube at once, one parameter at a time.

    Args:
        evaluator: measures the distance from the constraints.
        rng: the source of every random choice.
    """

    evaluator: ConstraintEvaluator
    rng: np.random.Generator

    def repair(
        self, units: FloatArray, rounds: int, held: BoolArray | None = None
    ) -> tuple[FloatArray, BoolArray]:
        """Nearby points that satisfy the constraints.

        Args:
            units: coordinates of shape (n, d) without NaN.
            rounds: at most this many moves per point; a move changes one parameter.
            held: coordinates to keep as long as others can be moved instead, shape (n, d).

        Returns:
            Coordinates of shape (n, d), and whether they satisfy the constraints, shape (n,).
        """
        units = units.copy()
        free = np.ones(units.shape, dtype=np.bool_) if held is None else ~held
        open_rows = np.arange(len(units))
        for left in range(rounds, -1, -1):
            distances = self.evaluator.distances(self.evaluator.raw(units[open_rows]))
            bad = distances.any(axis=1)
            open_rows = open_rows[bad]
            distances = distances[bad]
            if not len(open_rows) or not left:
                break
            for begin in range(0, len(open_rows), CHUNK):
                rows = open_rows[begin : begin + CHUNK]
                units[rows] = self._improved(
                    units[rows], distances[begin : begin + CHUNK], free[rows]
                )
        ok = np.ones(len(units), dtype=np.bool_)
        ok[open_rows] = False
        return units, ok

    def sweep(self, units: FloatArray, held: BoolArray | None = None) -> FloatArray:
        """One sweep of slice sampling by shrinkage over legal points.

        The target is uniform on the legal part of the cube: the first legal coordinate is accepted,
        and the interval, at first [0, 1], shrinks towards the current coordinate at each rejection
        (Neal 2003, Annals of Statistics 31). A parameter may be unable to move alone, for example
        under an equation; then it is sometimes set at random and the others are repaired.

        Args:
            units: legal coordinates of shape (n, d).
            held: coordinates that must not change, shape (n, d).

        Returns:
            Legal coordinates of shape (n, d).
        """
        units = units.copy()
        stuck = np.full(len(units), -1)
        for j in self.rng.permutation(self.evaluator.columns).tolist():
            rows = np.arange(len(units)) if held is None else np.flatnonzero(~held[:, j])
            if len(rows):
                units[rows, j], unmoved = self._slide(units[rows], j)
                stuck[rows[unmoved]] = j
        rows = np.flatnonzero(stuck >= 0)
        if len(rows):
            thrown = units[rows]
            thrown[np.arange(len(rows)), stuck[rows]] = self.rng.random(len(rows))
            thrown, ok = self.repair(thrown, rounds=12, held=None if held is None else held[rows])
            units[rows[ok]] = thrown[ok]
        return units

    def _slide(self, units: FloatArray, j: int) -> tuple[FloatArray, BoolArray]:
        """Move column j of points (n, d) to other legal values.

        Returns:
            The new column, and whether its value is unchanged, both of shape (n,).
        """
        parameter = self.evaluator.parameters[j]
        start = units[:, j].copy()
        before = parameter.raw(start)
        low = np.zeros(len(units))
        high = np.ones(len(units))
        raw = self.evaluator.raw(units)
        waiting = np.arange(len(units))
        for _ in range(SHRINKS):
            units[waiting, j] = low[waiting] + self.rng.random(len(waiting)) * (high - low)[waiting]
            trial = {name: column[waiting] for name, column in raw.items()}
            trial[parameter.name] = parameter.raw(units[waiting, j])
            refused = waiting[self.evaluator.distances(trial).any(axis=1)]
            if not len(refused):
                break
            below = units[refused, j] < start[refused]
            low[refused[below]] = units[refused[below], j]
            high[refused[~below]] = units[refused[~below], j]
            waiting = refused
        else:
            units[waiting, j] = start[waiting]
        unmoved: BoolArray = (parameter.raw(units[:, j]) == before) & (parameter.size != 1)
        return units[:, j], unmoved

    def _improved(self, units: FloatArray, distances: FloatArray, free: BoolArray) -> FloatArray:
        """Set one parameter of a violated constraint to the best of several values.

        Ties are broken at random.
        """
        count = len(units)
        chosen = self._choose(distances, free)
        candidates = np.empty((count, NUM_CANDIDATES))
        raw: dict[str, RawArray] = {
            name: np.repeat(column, NUM_CANDIDATES)
            for name, column in self.evaluator.raw(units).items()
        }
        for j in np.unique(chosen).tolist():
            rows = np.flatnonzero(chosen == j)
            parameter = self.evaluator.parameters[j]
            candidates[rows] = self._candidates(parameter, units[rows, j])
            column = raw[parameter.name].reshape(count, NUM_CANDIDATES)
            column[rows] = parameter.raw(candidates[rows].ravel()).reshape(
                len(rows), NUM_CANDIDATES
            )
        totals = self.evaluator.distances(raw).sum(axis=1).reshape(count, NUM_CANDIDATES)
        best = totals <= totals.min(axis=1, keepdims=True)
        pick = np.argmax(best * self.rng.random(best.shape), axis=1)
        moved = units.copy()
        moved[np.arange(count), chosen] = candidates[np.arange(count), pick]
        return moved

    def _choose(self, distances: FloatArray, free: BoolArray) -> RawArray:
        """For each point, a column of one of its violated constraints; a free one if possible."""
        violated = np.argmax((distances > 0) * self.rng.random(distances.shape), axis=1)
        weights = (free + 1e-6) * self.evaluator.depends[violated] * self.rng.random(free.shape)
        return cast(RawArray, np.argmax(weights, axis=1))

    def _candidates(self, parameter: Parameter, units: FloatArray) -> FloatArray:
        """Coordinates to try, shape (n, candidates).

        All values of a short list, else some near and some far ones.
        """
        count = len(units)
        size = parameter.size
        if size is not None and size <= NUM_CANDIDATES:
            listed = parameter.to_units(parameter.values())
            return np.tile(np.resize(listed, NUM_CANDIDATES), (count, 1))
        found = np.tile(units[:, None], (1, NUM_CANDIDATES))
        steps = _STEPS * self.rng.uniform(0.5, 1.0, size=(count, len(_STEPS)))
        found[:, :2] = (0.0, 1.0)
        found[:, 2:8] = self.rng.random((count, 6))
        if size is not None:  # neighbouring integers, which halved steps may miss
            found[:, 8:12] += np.array([-2.0, -1.0, 1.0, 2.0]) / size
        found[:, 12:30] += steps
        found[:, 30:48] -= steps
        return np.clip(found, 0.0, 1.0)


Weighted = list[tuple[Config, float]]

MAX_ENUMERATED: Final = 20_000


def enumerate_legal(space: SpaceDefinition) -> Weighted | None:
    """Every legal configuration with its volume in the unit cube.

    Built parameter by parameter; a configuration is dropped as soon as a constraint fails.

    Returns:
        None if there are more than `MAX_ENUMERATED` configurations, or infinitely many.
    """
    order = {name: j for j, name in enumerate(space.parameters)}
    decided_by: dict[str, list[Expression]] = {name: [] for name in order}
    for constraint in space.constraints:
        decided_by[max(constraint.names, key=order.__getitem__)].append(constraint)
    found: Weighted | None = [({}, 1.0)]
    for name, parameter in space.parameters.items():
        if found is None or parameter.size is None or parameter.size > MAX_ENUMERATED:
            return None
        found = _longer(space, found, parameter, decided_by[name])
    return found


def _longer(
    space: SpaceDefinition, found: Weighted, parameter: Parameter, constraints: list[Expression]
) -> Weighted | None:
    values = parameter.values()
    weighted = list(zip(values, parameter.weights(values).tolist(), strict=True))
    longer: Weighted = []
    for params, weight in found:
        if any(
            parent not in params or params[parent] not in allowed
            for parent, allowed in parameter.when.items()
        ):
            longer.append((params, weight))
            continue
        for value, width in weighted:
            candidate = {**params, parameter.name: value}
            if all(space.holds(constraint, candidate) for constraint in constraints):
                longer.append((candidate, weight * width))
        if len(longer) > MAX_ENUMERATED:
            return None
    return longer


BATCH: Final = 4096
MIN_ACCEPTED: Final = 16  # of a batch; with fewer, rejection is too slow
NUM_SEEDS: Final = 128
BURN_IN: Final = 8
SWEEPS: Final = 3


def connected_parts(space: SpaceDefinition) -> list[SpaceDefinition]:
    """The smallest sub-spaces, closed under parents, such that no constraint spans two of them."""
    groups: list[tuple[set[str], list[str]]] = []
    for constraint in space.constraints:
        names = with_ancestors(space.parameters, constraint.names)
        texts = [str(constraint)]
        for group in [group for group in groups if group[0] & names]:
            groups.remove(group)
            names = names | group[0]
            texts = group[1] + texts
        groups.append((names, texts))
    return [
        SpaceDefinition(
            *(p for name, p in space.parameters.items() if name in names), constraints=texts
        )
        for names, texts in groups
    ]


class Sampler:
    """Samples one connected part of a space with constraints."""

    def __init__(self, part: SpaceDefinition) -> None:
        self.part = part

    def draw(self, rng: np.random.Generator, count: int) -> list[Config]:
        """`count` legal configurations of the part; raises SpaceError if none is found."""
        if self._method == "enumerate":
            configurations, probabilities = self._enumerated
            return [
                configurations[i]
                for i in rng.choice(len(configurations), size=count, p=probabilities)
            ]
        return self._reject(rng, count) if self._method == "reject" else self._walk(rng, count)

    @cached_property
    def _method(self) -> Literal["reject", "enumerate", "walk"]:
        units = np.random.default_rng(0).random((BATCH, len(self.part)))
        if len(self._legal(units)) >= MIN_ACCEPTED:
            return "reject"
        return "enumerate" if self._enumerated[0] else "walk"

    def _legal(self, units: FloatArray) -> list[Config]:
        """The configurations that satisfy the constraints, decided in exact arithmetic."""
        fitting = units[self.part.evaluator.satisfied(units)]
        return [params for params in self.part.decode(fitting) if self.part.satisfied(params)]

    def _reject(self, rng: np.random.Generator, count: int) -> list[Config]:
        found: list[Config] = []
        size = count
        while len(found) < count:
            size = min(max(size, 16), 8 * BATCH)
            accepted = self._legal(rng.random((size, len(self.part))))
            found += accepted
            size = int(1.1 * (count - len(found)) * size / max(len(accepted), 0.5)) + 1
        return found[:count]

    @cached_property
    def _enumerated(self) -> tuple[list[Config], FloatArray]:
        """Every legal configuration of a small discrete part, with its probability; else none.

        Raises:
            SpaceError: the part is small, and no configuration satisfies the constraints.
        """
        found = enumerate_legal(self.part)
        if found is None:
            return [], np.zeros(0)
        if not found:
            raise SpaceError(
                f"no configuration satisfies the constraints ({self._texts()}), all were tried; "
                "relax one"
            )
        weights = np.array([weight for _, weight in found])
        return [params for params, _ in found], weights / weights.sum()

    def _texts(self) -> str:
        return "; ".join(map(str, self.part.constraints))

    def _walk(self, rng: np.random.Generator, count: int) -> list[Config]:
        walker = Walker(self.part.evaluator, rng)
        found: list[Config] = []
        starts = self._seeds
        while len(found) < count:
            units = starts[rng.integers(len(starts), size=count - len(found))]
            for _ in range(SWEEPS):
                units = walker.sweep(units)
            found += self._legal(units)
        return found

    @cached_property
    def _seeds(self) -> FloatArray:
        """Legal points, shape (n, d), spread over the legal part of the cube."""
        rng = np.random.default_rng(0)
        walker = Walker(self.part.evaluator, rng)
        units, ok = walker.repair(
            rng.random((NUM_SEEDS, len(self.part))), rounds=30 + 10 * len(self.part.constraints)
        )
        units = units[ok]
        for _ in range(BURN_IN):
            units = walker.sweep(units)
        exact = np.array(
            [self.part.satisfied(params) for params in self.part.decode(units)], dtype=np.bool_
        )
        if not exact.any():
            raise SpaceError(
                f"no configuration was found that satisfies the constraints ({self._texts()}); "
                "relax one"
            )
        return units[exact]


def neighbours(
    space: SpaceDefinition, params: Config, rng: np.random.Generator, count: int
) -> list[Config]:
    """See `Space.neighbours`."""
    base = space.encode([params])[0]
    known = {space.key(params)}
    found: list[Config] = []
    for attempt in range(8):
        units = _perturbed(space, base, rng, 2 * (count - len(found)) + 4)
        if space.constraints:
            units = _fitted(
                space,
                units,
                ~np.isnan(base) & (units != base),
                rng,
                rounds=0 if attempt < 2 else 20,
            )
        for candidate in _decoded(space, units, base, params):
            key = space.key(candidate)
            if key not in known and space.satisfied(candidate):
                known.add(key)
                found.append(candidate)
        if len(found) >= count:
            break
    return found[:count]


def _decoded(
    space: SpaceDefinition, units: FloatArray, base: FloatArray, params: Config
) -> list[Config]:
    """Decode coordinates; an unchanged coordinate keeps the value of `params`, unrounded."""
    found = space.decode(units)
    for candidate, row in zip(found, (units == base).tolist(), strict=True):
        candidate.update(
            {
                n: params[n]
                for n, same in zip(space.parameters, row, strict=True)
                if same and n in candidate
            }
        )
    return found


def _fitted(
    space: SpaceDefinition,
    units: FloatArray,
    changed: BoolArray,
    rng: np.random.Generator,
    rounds: int,
) -> FloatArray:
    """The points that satisfy the constraints, if necessary after changing further parameters."""
    walker = Walker(space.evaluator, rng)
    fitted, ok = walker.repair(units, rounds, held=changed)
    moved = ok & (fitted != units).any(axis=1)
    if moved.any():  # repair leaves points on the boundary: move them off it
        fitted[moved] = walker.sweep(fitted[moved], held=changed[moved])
    return fitted[ok]


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
    space: SpaceDefinition, params: Config, rng: np.random.Generator, tries: int = 8
) -> Config | None:
    """A legal configuration with few and small changes; None if none was found."""
    base = space.encode([params])[0]
    start = np.where(np.isnan(base), rng.random((tries, len(base))), base)
    rounds = 30 + 10 * len(space.constraints)
    units, ok = Walker(space.evaluator, rng).repair(start, rounds=rounds)
    order = np.lexsort((np.abs(units - start).sum(axis=1), (units != start).sum(axis=1)))
    for i in order[ok[order]].tolist():
        (candidate,) = _decoded(space, units[i : i + 1], base, params)
        if space.satisfied(candidate):
            return candidate
    return None
