"""Drawing legal configurations: rejection first, repair and slice sampling where constraints are tight."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .errors import SpaceError
from .parameters import Choice, FloatArray, Parameter, Params, Value

if TYPE_CHECKING:
    from .space import Space

Config = dict[str, Value]

BATCH = 2048
MIN_ACCEPTANCE = 0.02
REPAIRS = 200


def sample(space: Space, rng: np.random.Generator, count: int) -> list[Config]:
    """See `Space.sample`."""
    found: list[Config] = []
    drawn = 0
    while len(found) < count:
        size = min(max(2 * (count - len(found)), 16), BATCH) if space.constraints else count - len(found)
        batch = space.decode(rng.random((size, len(space))))
        drawn += size
        found += [params for params in batch if space.satisfied(params)] if space.constraints else batch
        if drawn >= BATCH and len(found) < MIN_ACCEPTANCE * drawn:
            return _walk(space, rng, found, count)
    return found[:count]


def _walk(space: Space, rng: np.random.Generator, found: list[Config], count: int) -> list[Config]:
    """Further points from chains that start at those found by chance or by repair."""
    tries = 0
    pool = list(found[:count])
    while len(pool) < min(count, 8) and tries < REPAIRS:
        tries += 1
        repaired = repair(space, rng, space.decode(rng.random((1, len(space))))[0])
        if repaired is not None:
            pool.append(repaired)
    if not pool:
        names = "; ".join(map(str, space.constraints))
        raise SpaceError(
            f"no configuration was found that satisfies the constraints ({names}) after {REPAIRS} repairs; relax one"
        )
    chains = list(pool)
    while len(pool) < count:
        i = int(rng.integers(len(chains)))
        chains[i] = _slice_step(space, rng, chains[i])
        pool.append(chains[i])
    return pool


def _slice_step(space: Space, rng: np.random.Generator, params: Config) -> Config:
    """One sweep of slice sampling with shrinkage over a legal point (Neal 2003, Annals of Statistics 31).

    The target is uniform on the legal part of the unit cube, so that a coordinate is accepted as soon as it is
    legal, and an interval that begins as [0, 1] shrinks towards the present coordinate at each refusal.
    """
    units = space.encode([params])[0]
    fresh = rng.random(len(units))
    units = np.where(np.isnan(units), fresh, units)
    for j in rng.permutation(len(units)):
        low, high = 0.0, 1.0
        for _ in range(12):
            trial = units.copy()
            trial[j] = rng.uniform(low, high)
            candidate = space.decode(trial[None, :])[0]
            if space.satisfied(candidate):
                units, params = trial, candidate
                break
            low, high = (trial[j], high) if trial[j] < units[j] else (low, trial[j])
    return params


def repair(space: Space, rng: np.random.Generator, params: Params, sweeps: int = 30) -> Config | None:
    """A configuration near `params` that satisfies the constraints, None where none was found.

    One parameter of a violated constraint is moved at a time to the best of several values.
    """
    units = space.encode([params])[0]
    units = np.where(np.isnan(units), rng.random(len(units)), units)
    columns = {name: j for j, name in enumerate(space.parameters)}
    for _ in range(sweeps * max(1, len(space.constraints))):
        current = space.decode(units[None, :])[0]
        violated = [c for c in space.constraints if _violation(space, current, c) > 0]
        if not violated:
            return current
        names = violated[int(rng.integers(len(violated)))].names
        j = columns[names[int(rng.integers(len(names)))]]
        trials = _moves(list(space.parameters.values())[j], units, j, rng)
        totals = [sum(_violation(space, p, c) for c in space.constraints) for p in space.decode(trials)]
        best = np.flatnonzero(np.asarray(totals) <= min(totals))
        units = trials[int(rng.choice(best))]
    return None


def _violation(space: Space, params: Config, constraint: object) -> float:
    from .expressions import Expression

    assert isinstance(constraint, Expression)
    if any(name not in params for name in constraint.names) or constraint.evaluate(params):
        return 0.0
    return 1.0


def _moves(parameter: Parameter, units: FloatArray, j: int, rng: np.random.Generator) -> FloatArray:
    size = parameter.size
    if size is not None and size <= 32:
        values = (np.arange(size) + 0.5) / size if isinstance(parameter, Choice) else np.linspace(0, 1, 2 * size + 1)
    else:
        values = np.concatenate([rng.random(12), [0.0, 1.0]])
    trials = np.repeat(units[None, :], len(values), axis=0)
    trials[:, j] = values
    return trials


def neighbours(space: Space, params: Params, rng: np.random.Generator, count: int) -> list[Config]:
    """See `Space.neighbours`."""
    known = {space.key(params)}
    found: list[Config] = []
    for _ in range(10):
        for candidate in space.decode(_perturbed(space, params, rng, 2 * (count - len(found)) + 8)):
            key = space.key(candidate)
            if key not in known and space.satisfied(candidate):
                known.add(key)
                found.append(candidate)
        if len(found) >= count:
            break
    return found[:count]


def _perturbed(space: Space, params: Params, rng: np.random.Generator, count: int) -> FloatArray:
    """Coordinates of `params`, shape (count, d), with one or two active ones changed and inactive ones drawn."""
    base = space.encode([params])[0]
    rows = np.where(np.isnan(base), rng.random((count, len(base))), base)
    active = np.flatnonzero(~np.isnan(base))
    parameters = list(space.parameters.values())
    for row in rows:
        for j in rng.choice(active, size=min(len(active), 1 + int(rng.random() < 0.3)), replace=False):
            row[j] = _move(parameters[j], float(row[j]), rng)
    return rows


def _move(parameter: Parameter, unit: float, rng: np.random.Generator) -> float:
    size = parameter.size
    if isinstance(parameter, Choice) and not parameter.ordered:
        step = int(rng.integers(1, size)) if size and size > 1 else 0
        return (unit + step / (size or 1)) % 1.0
    width = 10.0 ** rng.uniform(-2.0, -0.5)
    step = rng.normal(0.0, width)
    if size is not None and size > 1 and abs(step) < 1.0 / size:
        step = np.copysign(1.0 / size, step)
    moved = unit + step
    return float(abs(moved) if moved <= 1.0 else 2.0 - moved) if -1.0 <= moved <= 2.0 else float(rng.random())


__all__ = ["neighbours", "repair", "sample"]
