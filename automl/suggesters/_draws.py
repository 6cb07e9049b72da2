"""New configurations: never met before, always legal; shared by the suggesters that sample or repair."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence

import numpy as np

from automl.trial import Trial
from search_spaces import Choice, Int, Space
from search_spaces.errors import SpaceError
from search_spaces.parameters import Parameter
from workers.protocol import Params, Value

ENUMERABLE = 2_000
_BATCH = 64
_TRIES = 32


def keys(space: Space, *trials: Sequence[Trial]) -> set[Hashable]:
    """Identities of the configurations of these trials, so that none of them is proposed again."""
    return {space.key(trial.params) for part in trials for trial in part}


def new_points(space: Space, rng: np.random.Generator, seen: Collection[Hashable], count: int) -> list[Params]:
    """`count` legal configurations, different from each other and from `seen`; fewer where there are no more.

    A space of at most `ENUMERABLE` configurations is searched to its end; in a larger one the search gives up after
    some 2,000 draws that were all met before.
    """
    met, found = set(seen), list[Params]()
    for attempt in range(_TRIES):
        for params in _sample(space, rng, _BATCH if attempt else count):
            key = space.key(params)
            if key not in met:
                met.add(key)
                found.append(params)
                if len(found) == count:
                    return found
        if space.size is not None and space.size <= ENUMERABLE:
            break
    if space.size is None or space.size > ENUMERABLE:
        return found
    rest = [params for params in enumerate_points(space) if space.key(params) not in met]
    order = rng.permutation(len(rest))[: count - len(found)]
    return found + [rest[i] for i in order]


def _sample(space: Space, rng: np.random.Generator, count: int) -> Iterable[Params]:
    try:
        return space.sample(rng, count)
    except SpaceError:
        return []


def enumerate_points(space: Space) -> Iterator[Params]:
    """Every legal configuration of a finite space."""
    for params in _extend(space, {}, list(space.parameters)):
        if space.legal(params):
            yield params


def _extend(space: Space, params: dict[str, Value], names: list[str]) -> Iterator[Params]:
    if not names:
        yield dict(params)
        return
    name, rest = names[0], names[1:]
    parameter = space.parameters[name]
    if any(parent not in params or params[parent] not in values for parent, values in parameter.when.items()):
        yield from _extend(space, params, rest)
        return
    for value in _values(parameter):
        yield from _extend(space, {**params, name: value}, rest)


def _values(parameter: Parameter) -> Iterable[Value]:
    if isinstance(parameter, Choice):
        return parameter.choices
    if isinstance(parameter, Int):
        return range(parameter.low, parameter.high + 1)
    return (parameter.middle(),)  # a Float in a finite space has one value


def repair(space: Space, wanted: Params, rng: np.random.Generator, seen: Collection[Hashable]) -> Params | None:
    """The legal, new configuration that keeps as much of `wanted` as a greedy walk finds; None where nothing is new.

    It starts from the nearest of some sampled configurations and takes over one value of `wanted` after another as
    long as the result stays legal and new.
    """
    if space.legal(wanted) and space.key(wanted) not in seen:
        return wanted
    points = new_points(space, rng, seen, _BATCH)
    if not points:
        return None
    target = space.encode([space.strip(wanted)])[0]
    apart = np.abs(space.encode(points) - target)
    current = points[int(np.argmin(np.nan_to_num(apart, nan=1.0).sum(axis=1)))]
    for name in space.parameters:
        if name in current and name in wanted and current[name] != wanted[name]:
            changed = {**current, name: wanted[name]}
            if space.legal(changed) and space.key(changed) not in seen:
                current = changed
    return current
