"""The user's prior: where good values probably are, as a density for each parameter.

Users give it as `prior`, together with sources of finished trials.
`bayes.acquisition.user_prior` says how it enters the acquisition.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from automl.core.plugin_choice import PluginChoice, choose
from automl.core.text import number
from automl.errors import UsageError
from search_spaces import Choice, Space
from search_spaces.parameters import Parameter, Value
from search_spaces.plugins import nearest
from search_spaces.validation import show

from . import SUGGESTERS

if TYPE_CHECKING:
    from workers.protocol import Params

    from .base import EarlierSweep, Suggester

Array = NDArray[np.float64]
SPREAD: Final = 0.15  # default standard deviation, as a part of the parameter's range
FAVOUR: Final = 4.0  # weight of a favoured choice; the others weigh 1
GOOD: Final = 0.15  # part of the trials of an earlier sweep that counts as good
MIN_GOOD: Final = 3  # trials, at least
FLOOR: Final = 0.1  # uniform share of the density, so that a wrong prior rules nothing out
USUAL: Final = "usual"  # a word of `prior`: usual values of well-known parameters
LIKE: Final = "like:"  # and before the name of an earlier sweep
KEYS: Final = ("at", "spread", "weights", "strength")


@dataclass(frozen=True)
class ParameterPrior:
    """A density over the values of one parameter.

    Args:
        parameter: whose values.
        at: values near which good ones are; for an unordered choice, the favoured ones.
        spread: standard deviation around each value, as a part of the parameter's range (of the
            range's logarithm if the parameter is logarithmic).
        weights: of choices, by value. A choice that is not named weighs 1.
        strength: power of the density in that of a configuration.
    """

    parameter: Parameter
    at: tuple[Value, ...] = ()
    spread: float = SPREAD
    weights: tuple[tuple[Value, float], ...] = ()
    strength: float = 1.0

    @classmethod
    def read(cls, parameter: Parameter, given: Any) -> ParameterPrior:
        """Read a value, `[low, high]` of a number, a list, `{at, spread}` or `{weights: ...}`.

        Two numbers are a range: it is one standard deviation to both sides of its middle.

        Raises:
            UsageError: it has another form, or names a value that the parameter cannot have.
        """
        name = parameter.name
        is_pair = isinstance(given, list | tuple) and len(given) == 2
        if is_pair and not isinstance(parameter, Choice):
            ends = sorted(parameter.to_unit(parameter.accept(value)) for value in given)
            middle = parameter.from_unit(sum(ends) / 2)
            given = {"at": [middle], "spread": (ends[1] - ends[0]) / 2 or SPREAD}
        elif not isinstance(given, Mapping):
            given = {"at": given}
        if unknown := [key for key in given if key not in KEYS]:
            known = "at, spread, weights and strength"
            raise UsageError(f"prior.{name} takes {known}, got {show(unknown[0])}")
        if not ("at" in given) ^ ("weights" in given):
            raise UsageError(f"prior.{name} needs either at or weights, got {show(dict(given))}")
        spread, strength = given.get("spread", SPREAD), given.get("strength", 1.0)
        for key, part in (("spread", spread), ("strength", strength)):
            if isinstance(part, bool) or not isinstance(part, int | float) or not 0 < part <= 1:
                raise UsageError(
                    f"{key} of prior.{name} must be above 0 and at most 1, got {show(part)}"
                )
        if given.get("at", True) in ([], ()) or given.get("weights", True) in ({}, None):
            raise UsageError(f"prior.{name} needs at least one value, got {show(dict(given))}")
        at = given.get("at", ())
        values = tuple(
            parameter.accept(value)
            for value in (at if isinstance(at, list | tuple) and not parameter.legal(at) else [at])
        )
        weights = _weights(parameter, given.get("weights", {}))
        return cls(parameter, values, float(spread), weights, float(strength))

    def to_dict(self) -> dict[str, Any]:
        """As JSON data, the inverse of `read`."""
        strength = {} if self.strength == 1 else {"strength": self.strength}
        if self.weights:
            return {"weights": {str(value): weight for value, weight in self.weights}, **strength}
        return {"at": list(self.at), "spread": self.spread, **strength}

    def density(self, unit: Array) -> Array:
        """Density of `m` coordinates in [0, 1]; uniform is 1, and so is NaN (inactive)."""
        if (mass := self._mass()) is not None:
            cells = np.minimum((np.nan_to_num(unit) * len(mass)).astype(int), len(mass) - 1)
            found = mass[cells] * len(mass)
        else:
            x = np.nan_to_num(unit)[:, None]
            found = truncated_normal(x, self._centres(), self.spread).mean(1)
        return np.where(np.isnan(unit), 1.0, FLOOR + (1 - FLOOR) * found)

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """`count` coordinates from the density."""
        if (mass := self._mass()) is not None:
            found = (rng.choice(len(mass), size=count, p=mass) + 0.5) / len(mass)
        else:
            centres = self._centres()
            found = rng.choice(centres, size=count) + self.spread * rng.standard_normal(count)
            found = np.abs(found)
            found = np.where(found > 1, 2 - found, found)  # reflected at both ends
        return np.where(rng.random(count) < FLOOR, rng.random(count), np.clip(found, 0.0, 1.0))

    @property
    def mode(self) -> Value:
        """The most probable value."""
        if self.weights:
            return max(self.weights, key=lambda item: item[1])[0]
        return self.at[0]

    def _centres(self) -> Array:
        return np.array([self.parameter.to_unit(value) for value in self.at])

    def _mass(self) -> Array | None:
        """Probability of each choice; None for numbers, and for ordered choices without weights."""
        if not isinstance(self.parameter, Choice) or (self.parameter.ordered and not self.weights):
            return None
        mass = np.ones(len(self.parameter.choices))
        for value in self.at:
            mass[self.parameter.index(value)] += (
                (FAVOUR - 1) * len(self.parameter.choices) / 2 / len(self.at)
            )
        for value, weight in self.weights:
            mass[self.parameter.index(value)] = weight
        return np.asarray(mass / mass.sum())

    def __str__(self) -> str:
        if self.weights:
            return ", ".join(f"{number(value)} ({weight:g})" for value, weight in self.weights)
        values = " or ".join(number(value) for value in self.at[:4])
        values += " or ..." if len(self.at) > 4 else ""
        if self._mass() is not None:
            return values
        return f"near {values}, within about {self.spread:.0%} of the range"


class UserPrior:
    """The priors of the parameters of one space, independent of each other.

    Args:
        space: what is tuned.
        given: a prior by parameter, in the form that `ParameterPrior.read` takes.

    Raises:
        UsageError: a parameter is unknown, or a prior does not fit it.
    """

    def __init__(self, space: Space, given: Mapping[str, Any]) -> None:
        if not isinstance(given, Mapping):
            raise UsageError(f"prior maps parameters to good values, got {show(given)}")
        self.space = space
        for name in given:
            if name not in space.parameters:
                hint = nearest(str(name), list(space.parameters))
                raise UsageError(f"prior names {name!r}, which is not tuned: {hint}")
        self.by_name = {
            name: ParameterPrior.read(space.parameters[name], value)
            for name, value in given.items()
        }
        names = list(space.parameters)
        self._columns = [(names.index(name), prior) for name, prior in self.by_name.items()]

    def __bool__(self) -> bool:
        return bool(self.by_name)

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return {name: prior.to_dict() for name, prior in self.by_name.items()}

    def log_density(self, unit: Array) -> Array:
        """Log density of configurations `m x d` in the unit cube, `m`; 0 for a uniform prior."""
        total = np.zeros(len(unit))
        for column, prior in self._columns:
            total += prior.strength * np.log(prior.density(unit[:, column]))
        return total

    def draw(self, rng: np.random.Generator, points: Array) -> Array:
        """The points `m x d`, with the parameters that have a prior drawn from it."""
        found = points.copy()
        for column, prior in self._columns:
            found[:, column] = prior.draw(rng, len(points))
        return found

    def mode(self) -> dict[str, Value]:
        """The most probable value of each parameter that has a prior."""
        return {name: prior.mode for name, prior in self.by_name.items()}


def split_prior(prior: Any) -> tuple[dict[str, Any], tuple[str, ...], list[Any]]:
    """What is known before, apart: values by parameter, what to learn from, and sources of trials.

    Args:
        prior: a mapping, "usual", "like:SWEEP", a source, or a list of these.
    """
    items = list(prior) if isinstance(prior, list | tuple) else [] if prior is None else [prior]
    expected = {name: v for one in items if isinstance(one, Mapping) for name, v in one.items()}
    words = [one for one in items if isinstance(one, str)]
    learns = tuple(one for one in words if one == USUAL or one.startswith(LIKE))
    sources = [one for one in items if not isinstance(one, Mapping) and one not in learns]
    return expected, learns, sources


def check_prior(
    given: Mapping[str, Any], space: Space, suggester: str | PluginChoice[Suggester]
) -> dict[str, Any]:
    """The prior as the ledger keeps it, checked.

    Raises:
        UsageError: it does not fit the space, or the suggester would ignore it.
    """
    choice = choose(SUGGESTERS, suggester)
    if given and not choice.kind(SUGGESTERS).uses_context:
        raise UsageError(
            f"the suggester {choice.name!r} ignores prior: leave it out, or use 'bayes'"
        )
    return UserPrior(space, given).to_dict()


def without_unavailable(
    given: Mapping[str, Any], unavailable: Container[tuple[str, str | None]]
) -> dict[str, Any]:
    """The prior without the values that this hardware cannot run.

    Args:
        unavailable: names and values, as text, that are not tried; None for a whole parameter.
    """
    found: dict[str, Any] = {}
    for name, prior in given.items():
        left = prior
        if isinstance(prior, Mapping) and isinstance(prior.get("weights"), Mapping):
            weights = {
                value: weight
                for value, weight in prior["weights"].items()
                if (name, str(value)) not in unavailable
            }
            left = {**prior, "weights": weights} if weights else None
        elif not isinstance(prior, Mapping):
            values = prior if isinstance(prior, list) else [prior]
            left = [value for value in values if (name, str(value)) not in unavailable] or None
        if left is not None and (name, None) not in unavailable:
            found[name] = left
    return found


def best_of(sweep: EarlierSweep, metric: str) -> list[Params]:
    """The best configurations of an earlier sweep: 15% of its trials, at least three."""
    losses = np.array(sweep.losses.get(metric, ()), dtype=np.float64)
    order = np.argsort(losses, kind="stable")[: int(np.isfinite(losses).sum())]
    return [sweep.params[i] for i in order[: max(MIN_GOOD, round(GOOD * len(order)))]]


def prior_from_best(space: Space, configurations: Sequence[Mapping[str, Value]]) -> dict[str, Any]:
    """A prior around the best configurations of an earlier sweep.

    Numbers get a normal density around each value. Its width follows their standard deviation
    (Silverman, "Density estimation", 1986), and is between 5% and 50% of the range. Choices are
    weighted by how often they occur. Good values of several parameters depend on each other, so the
    product of their densities says too much: its logarithm is divided by the root of their number.
    """
    found: dict[str, Any] = {}
    for name, parameter in space.parameters.items():
        values = [
            params[name]
            for params in configurations
            if name in params and parameter.legal(params[name])
        ]
        if not values or parameter.size == 1:
            continue
        if isinstance(parameter, Choice):
            each = FAVOUR * len(parameter.choices) / 2 / len(values)
            found[name] = {
                "weights": {
                    parameter.text(choice): round(1 + each * values.count(choice), 3)
                    for choice in parameter.choices
                }
            }
        else:
            apart = float(np.std([parameter.to_unit(value) for value in values]))
            spread = min(max(1.06 * apart * len(values) ** -0.2, 0.05), 0.5)
            found[name] = {"at": values, "spread": round(spread, 3)}
    return {name: {**one, "strength": len(found) ** -0.5} for name, one in found.items()}


def _weights(parameter: Parameter, given: Any) -> tuple[tuple[Value, float], ...]:
    if not given:
        return ()
    if not isinstance(parameter, Choice) or not isinstance(given, Mapping):
        raise UsageError(
            f"only a choice has weights, as {{VALUE: WEIGHT}}; {parameter.name} has {given!r}"
        )
    found = []
    for value, weight in given.items():
        if (
            isinstance(weight, bool)
            or not isinstance(weight, int | float)
            or not 0 < weight < math.inf
        ):
            raise UsageError(
                f"the weight of {parameter.name}={value} must be a positive number, "
                f"got {show(weight)}"
            )
        found.append((parameter.accept(value, text=True), float(weight)))
    return tuple(found)


def truncated_normal(x: Array, centres: Array, spread: float) -> Array:
    """Density of coordinates in [0, 1] around centres, which are broadcast against them."""
    bumps = np.exp(-0.5 * ((x - centres) / spread) ** 2) / (spread * math.sqrt(2 * math.pi))
    return np.asarray(bumps / (_normal((1 - centres) / spread) - _normal(-centres / spread)))


@np.vectorize
def _normal(z: float) -> float:
    """The normal distribution function."""
    return 0.5 * math.erfc(-z / math.sqrt(2))
