"""New configurations: never met before, always legal; shared by the suggesters that sample or repair."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np

from automl.core.trial import Trial
from search_spaces import Space
from search_spaces.enumeration import MAX_ENUMERATED, enumerate_legal
from search_spaces.errors import SpaceError
from workers.protocol import Params

_BATCH = 64
_TRIES = 32
_KEYS: Final[WeakKeyDictionary[Space, dict[int, tuple[Params, Hashable]]]] = WeakKeyDictionary()


def keys(space: Space, *trials: Sequence[Trial]) -> set[Hashable]:
    """Identities of the configurations of these trials, so that none of them is proposed again."""
    known = _KEYS.setdefault(
        space, {}
    )  # by number, while it is the very configuration: histories are read again
    found: set[Hashable] = set()
    for part in trials:
        for trial in part:
            entry = known.get(trial.number)
            if entry is None or entry[0] is not trial.params:
                entry = known[trial.number] = (trial.params, space.key(trial.params))
            found.add(entry[1])
    return found


def new_points(
    space: Space, rng: np.random.Generator, seen: Collection[Hashable], count: int
) -> list[Params]:
    """`count` legal configurations, different from each other and from `seen`; fewer where there are no more.

    A space of at most `MAX_ENUMERATED` configurations is searched to its end; in a larger one the search gives up
    after some 2,000 draws that were all met before.
    """
    met, found = set(seen), list[Params]()
    small = space.size is not None and space.size <= MAX_ENUMERATED
    for attempt in range(2 if small else _TRIES):
        for params in _sample(space, rng, _BATCH if attempt else count):
            key = space.key(params)
            if key not in met:
                met.add(key)
                found.append(params)
                if len(found) == count:
                    return found
    if not small:
        return found
    rest = [params for params, _ in _enumerate(space) if space.key(params) not in met]
    order = rng.permutation(len(rest))[: count - len(found)]
    return found + [rest[i] for i in order]


def _sample(space: Space, rng: np.random.Generator, count: int) -> Sequence[Params]:
    try:
        return space.sample(rng, count)
    except SpaceError:
        return []


def _enumerate(space: Space) -> Sequence[tuple[Params, float]]:
    return enumerate_legal(space) or []


def repair(
    space: Space, wanted: Params, rng: np.random.Generator, seen: Collection[Hashable]
) -> Params | None:
    """A legal, new configuration near `wanted`, whose values are legal; None where nothing is new."""
    try:
        near = space.repair(wanted, rng)
    except SpaceError:
        return next(iter(new_points(space, rng, seen, 1)), None)
    if space.key(near) not in seen:
        return near
    for params in space.neighbours(near, rng, _BATCH):
        if space.key(params) not in seen:
            return params
    return next(iter(new_points(space, rng, seen, 1)), None)
