"""The domain of a search: its space within a user's limits, and what of it was not tried yet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from automl.core import SweepSpec, Trial
from automl.core.text import number
from automl.errors import SpaceError, UsageError
from search_spaces import Choice, Float, Int, Space
from search_spaces.parameters import Parameter, Value, parameter_from_dict
from search_spaces.sampling import MAX_ENUMERATED, enumerate_legal
from search_spaces.values import among, plain
from workers.protocol import Params

_BATCH = 64
_TRIES = 32


@dataclass(frozen=True)
class Limit:
    """The values of one parameter that may still be tried.

    Args:
        choices: of a `Choice`, in its order.
        low: smallest value of a number.
        high: largest value of a number; equal to `low` if the number is pinned.
    """

    choices: tuple[Value, ...] = ()
    low: float = 0.0
    high: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        numbers = {"low": self.low, "high": self.high}
        return {"choices": list(self.choices)} if self.choices else numbers

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Limit:
        """The inverse of `to_dict`."""
        return cls(plain(data.get("choices", ())), data.get("low", 0.0), data.get("high", 0.0))

    def __str__(self) -> str:
        if self.choices:
            return ", ".join(map(number, self.choices))
        return " to ".join(dict.fromkeys([f"{self.low:.15g}", f"{self.high:.15g}"]))


Limits = Mapping[str, Limit]


class Domain:
    """A space within limits: only its configurations may be proposed.

    Encodings and keys are those of the whole space, so that trials outside of the limits still
    teach the surrogates, and are not repeated.

    Args:
        present: the space of the sweep.
        limits: by parameter; none for the whole space.
        explored: a larger space, which has the trials from before a change of the space too.

    Attributes:
        space: the whole space: `explored` if there is one, else `present`.
        inner: the space within the limits. A parameter that can no longer be active is not in it.
        narrow: whether `inner` is less than `space`.

    Raises:
        UsageError: a limit does not fit the space, or no configuration is left.
    """

    def __init__(
        self, present: Space, limits: Limits | None = None, explored: Space | None = None
    ) -> None:
        self.space = explored or present
        self.limits = dict(limits or {})
        self.inner = _narrowed(present, self.limits) if self.limits else present
        self.narrow = self.inner is not self.space
        self._present = present
        self._explored = explored
        # The constraints of the present space, on the coordinates of the whole one.
        whole = self.space.parameters.values()
        self._rules = Space(*whole, constraints=present.constraints) if explored else present

    @classmethod
    def of(cls, spec: SweepSpec) -> Domain:
        """The domain of a sweep without limits."""
        grown = spec.space if spec.history.asked is not None else None  # trials may have less
        return cls(spec.space, explored=spec.history.explored or grown)

    def within(self, limits: Limits) -> Domain:
        """The same space within other limits."""
        return Domain(self._present, limits, self._explored)

    def fitted(self, params: Params) -> Params:
        """An earlier configuration, with the defaults of parameters that are new since."""
        return params if self._explored is None else self._explored.complete(params)

    def feasible(self, units: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether coordinates `n x d` of the whole space satisfy the present constraints, `n`."""
        return self._rules.feasible(units)

    @property
    def changed(self) -> bool:
        """Whether the space has changed since the first trial."""
        return self._explored is not None

    def legal(self, params: Params) -> bool:
        """Whether the configuration may be proposed."""
        return self.inner.legal(params)

    def first_new(
        self, configurations: Iterable[Params], taken: Collection[Hashable]
    ) -> list[Params]:
        """The first that may be proposed and is not `taken`; none if there is none.

        Args:
            configurations: legal or not, their numbers rounded by the encoding.
            taken: keys of known configurations.
        """
        new = (
            inside
            for inside in map(self._inside, configurations)
            if self.space.key(inside) not in taken and self.inner.legal(inside)
        )
        return list(islice(new, 1))

    def new_points(
        self, rng: np.random.Generator, taken: Collection[Hashable], count: int
    ) -> list[Params]:
        """`count` random configurations that are not `taken`; fewer if there are no more."""
        return new_points(self.inner, rng, taken, count, self.space.key)

    def repair(self, params: Params, rng: np.random.Generator) -> Params | None:
        """A legal configuration near `params`, whatever is missing at its default or middle.

        Returns:
            None if none was found.
        """
        known = self.inner.parameters
        kept = {n: v for n, v in params.items() if n in known and known[n].legal(v)}
        try:
            return self.inner.repair(kept, rng)
        except SpaceError:
            return None

    def neighbours(self, params: Params, rng: np.random.Generator, count: int) -> list[Params]:
        """Up to `count` legal configurations near this one; none if it is not legal itself."""
        if self.narrow and not self.legal(params):
            return []
        return list(self.inner.neighbours(params, rng, count))

    def _inside(self, params: Params) -> Params:
        # Rounding may have left the range.
        known = self.inner.parameters
        return {
            name: parameter.nearest(value)  # type: ignore[arg-type]
            if isinstance(parameter := known.get(name), Float | Int)
            else value
            for name, value in params.items()
        }


def updated_limits(
    changes: Iterable[Mapping[str, Any]], before: Limits | None = None
) -> dict[str, Limit]:
    """The limits after some changes, by parameter.

    Args:
        changes: in their order; each maps parameters to a limit as JSON data, or to None to
            release them.
        before: the limits that held until then.
    """
    found: dict[str, Limit | None] = {**(before or {})}
    for change in changes:
        found |= {n: None if data is None else Limit.from_dict(data) for n, data in change.items()}
    return {name: limit for name, limit in found.items() if limit is not None}


def _narrowed(space: Space, limits: Limits) -> Space:
    kept: dict[str, Parameter] = {}
    for name, parameter in space.parameters.items():
        when = {
            parent: [value for value in values if parent in kept and kept[parent].legal(value)]
            for parent, values in parameter.when.items()
        }
        if all(when.values()):
            kept[name] = _limited(parameter, limits.get(name), when)
    constraints = [c for c in space.constraints if all(name in kept for name in c.names)]
    try:
        found = Space(*kept.values(), constraints=constraints)
        found.sample(np.random.default_rng(0))
        return found
    except SpaceError as error:
        rules = "; ".join(f"{name}: {limit}" for name, limit in limits.items())
        raise UsageError(f"no configuration is left within {rules} ({error})") from error


def _limited(
    parameter: Parameter, limit: Limit | None, when: Mapping[str, list[Value]]
) -> Parameter:
    """The parameter with the values that are left; its default is moved to the nearest of them."""
    data = {**parameter.to_dict(), **({"when": dict(when)} if when else {})}
    if limit is None:
        return parameter_from_dict(data)
    default = data.pop("default", None)
    if isinstance(parameter, Choice):
        data["choices"] = [value for value in limit.choices if parameter.legal(value)]
        nearest = default if among(default, limit.choices) else limit.choices[0]
    else:
        assert isinstance(parameter, Float | Int)
        data["low"] = max(parameter.low, limit.low)
        data["high"] = min(parameter.high, limit.high)
        nearest = parameter_from_dict(data).nearest(default) if default is not None else None  # type: ignore[attr-defined]
    if parameter.has_default:
        data["default"] = nearest
    return parameter_from_dict(data)


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
