"""Sampling of legal configurations: by rejection, by enumeration, or by a walk.

Parameters that no constraint connects are sampled separately, so a hundred constraints on a hundred
pairs are as easy as one. The method for each connected part is chosen once, with a fixed seed, so
the result depends only on the caller's generator and not on earlier samples.
"""

from functools import cached_property
from typing import Final, Literal

import numpy as np

from .conditions import with_ancestors
from .constraint_evaluation import BoolArray
from .definition import Config, SpaceDefinition
from .enumeration import enumerate_legal
from .errors import SpaceError
from .parameters import FloatArray
from .repair import Walker

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
