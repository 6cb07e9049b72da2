"""Legal configurations that were not tried before."""

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice

import numpy as np

from automl.core import Trial
from search_spaces import Space, SpaceError
from search_spaces.sampling import MAX_ENUMERATED, enumerate_legal
from workers.protocol import Params

_BATCH = 64
_TRIES = 32


class TrialKeys:
    """Identities of the configurations of trials; each is computed once, as histories only grow.

    Args:
        space: of the configurations.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._known: dict[int, tuple[Params, Hashable]] = {}  # by trial number

    def __call__(self, *trials: Sequence[Trial]) -> set[Hashable]:
        """The keys of all of these trials."""
        return set(map(self._key, chain(*trials)))

    def _key(self, trial: Trial) -> Hashable:
        params, key = self._known.get(trial.number, (None, None))
        if params is not trial.params:
            key = self._space.key(trial.params)
            self._known[trial.number] = trial.params, key
        return key


def new_points(
    space: Space,
    rng: np.random.Generator,
    seen: Collection[Hashable],
    count: int,
    key: Callable[[Params], Hashable] | None = None,
) -> list[Params]:
    """`count` legal configurations, different from each other and from `seen`.

    Fewer come back if there are no more. A space of at most `MAX_ENUMERATED` configurations is
    searched to its end. In a larger one the search gives up after 2,000 draws in vain.

    Args:
        seen: keys of known configurations.
        key: makes them, by default the key of `space`.
    """
    met = set(seen)

    def is_new(params: Params) -> bool:
        identity = (key or space.key)(params)
        fresh = identity not in met
        met.add(identity)
        return fresh

    return list(islice(filter(is_new, _drawn(space, rng, count)), count))


def _drawn(space: Space, rng: np.random.Generator, count: int) -> Iterator[Params]:
    small = space.size is not None and space.size <= MAX_ENUMERATED
    for attempt in range(2 if small else _TRIES):
        with suppress(SpaceError):
            yield from space.sample(rng, _BATCH if attempt else count)
    if small and (every := enumerate_legal(space)) is not None:
        yield from space.decode(rng.permutation(every[0]))


def repair(
    space: Space, wanted: Params | None, rng: np.random.Generator, seen: Collection[Hashable]
) -> Params | None:
    """A legal, new configuration near `wanted`; None if the space has no new one.

    Args:
        wanted: its values are legal, but it may break constraints; None for a random one.
        seen: keys of known configurations.
    """
    if wanted is not None:
        with suppress(SpaceError):
            near = space.repair(wanted, rng)
            for params in chain([near], space.neighbours(near, rng, _BATCH)):
                if space.key(params) not in seen:
                    return params
    return next(iter(new_points(space, rng, seen, 1)), None)
