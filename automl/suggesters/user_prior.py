"""The user's prior: where good values probably are, as a density for each parameter.

Users give it as `prior`, together with sources of finished trials.
`prior_term` of `bayes.acquisition` says how it enters the acquisition.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from automl.core.key_kinds import PluginChoice, choose
from automl.core.text import number
from automl.errors import UsageError
from search_spaces import Choice, Space
from search_spaces.parameters import Parameter, Value
from search_spaces.plugins import nearest
from search_spaces.values import show

from . import SUGGESTERS

if TYPE_CHECKING:
    from workers.protocol import Params

    from .base import EarlierSweep, Suggester

Array = NDArray[np.float64]
SPREAD: Final = 0.15  # default standard deviation, as a part of the parameter's range
FAVOUR: Final = 4.0  # weight of a favoured choice, of two; the others weigh 1
GOOD: Final = 0.15  # part of the trials of an earlier sweep that counts as good
MIN_GOOD: Final = 3  # trials, at least
FLOOR: Final = 0.1  # uniform share of the density, so that a wrong prior rules nothing out
LIKE: Final = "like:"  # before the name of an earlier sweep
KEYS: Final = ("at", "spread")


@dataclass(frozen=True)
class ParameterPrior:
    """A density over the values of one parameter.

    Args:
        parameter: whose values.
        at: values near which good ones are, the most probable first; of an unordered choice, the
            favoured ones.
        spread: standard deviation around each value, as a part of the parameter's range (of the
            range's logarithm if the parameter is logarithmic).
        mass: probability of each choice, in their order; () for numbers.
        strength: power of the density in that of a configuration.
    """

    parameter: Parameter
    at: tuple[Value, ...]
    spread: float = SPREAD
    mass: tuple[float, ...] = ()
    strength: float = 1.0

    @classmethod
    def read(cls, parameter: Parameter, given: Any) -> ParameterPrior:
        """Read a value, `[low, high]` of a number, a list, or `{at, spread}`.

        Two numbers are a range: it is one standard deviation to both sides of its middle.

        Raises:
            UsageError: it has another form, or names a value that the parameter cannot have.
        """
        is_pair = isinstance(given, list | tuple) and len(given) == 2
        at, spread, known = given, SPREAD, True
        if isinstance(given, Mapping):
            at, spread = given.get("at", ()), given.get("spread", SPREAD)
            known = set(given) <= set(KEYS)
        elif is_pair and not isinstance(parameter, Choice):
            ends = sorted(parameter.to_unit(parameter.accept(value)) for value in given)
            at, spread = [parameter.from_unit(sum(ends) / 2)], (ends[1] - ends[0]) / 2 or SPREAD
        listed = isinstance(at, list | tuple) and not parameter.legal(at)
        values = tuple(parameter.accept(value) for value in (at if listed else [at]))
        if not (known and values and isinstance(spread, int | float) and 0 < spread <= 1):
            raise UsageError(
                f"prior.{parameter.name} is a value, a list, or a mapping of at and spread "
                f"(above 0 and at most 1), got {show(given)}"
            )
        mass: list[float] = []
        if isinstance(parameter, Choice) and not parameter.ordered:
            weight = (FAVOUR - 1) * len(parameter.choices) / 2 / len(values)
            mass = [1 + weight * n for n in _counts(parameter, values)]
        return cls(parameter, values, float(spread), tuple(mass))

    def to_dict(self) -> dict[str, Any]:
        """As JSON data, the inverse of `read`."""
        return {"at": list(self.at), "spread": self.spread}

    def density(self, unit: Array) -> Array:
        """Density of `m` coordinates in [0, 1]; uniform is 1, and so is NaN (inactive)."""
        x = np.nan_to_num(unit)
        if self.mass:
            mass = self._mass()
            found = mass[np.minimum((x * len(mass)).astype(int), len(mass) - 1)] * len(mass)
        else:
            found = truncated_normal(x[:, None], self._centres(), self.spread).mean(1)
        return np.where(np.isnan(unit), 1.0, FLOOR + (1 - FLOOR) * found)

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """`count` coordinates from the density."""
        if self.mass:
            found = (rng.choice(len(self.mass), size=count, p=self._mass()) + 0.5) / len(self.mass)
        else:
            centres = self._centres()
            found = rng.choice(centres, size=count) + self.spread * rng.standard_normal(count)
            found = np.abs(found)
            found = np.where(found > 1, 2 - found, found)  # reflected at both ends
        return np.where(rng.random(count) < FLOOR, rng.random(count), np.clip(found, 0.0, 1.0))

    def _centres(self) -> Array:
        return np.array([self.parameter.to_unit(value) for value in self.at])

    def _mass(self) -> Array:
        mass = np.array(self.mass)
        return np.asarray(mass / mass.sum())

    def __str__(self) -> str:
        values = " or ".join(map(number, self.at))
        return (
            values if self.mass else f"near {values}, within about {self.spread:.0%} of the range"
        )


class UserPrior:
    """The priors of the parameters of one space, independent of each other.

    Args:
        space: what is tuned.
        given: a prior by parameter, or what `ParameterPrior.read` takes.

    Raises:
        UsageError: a parameter is unknown, or a prior does not fit it.
    """

    def __init__(self, space: Space, given: Mapping[str, Any]) -> None:
        self.space = space
        for name in given:
            if name not in space.parameters:
                hint = nearest(str(name), list(space.parameters))
                raise UsageError(f"prior names {name!r}, which is not tuned: {hint}")
        self.by_name = {
            name: value
            if isinstance(value, ParameterPrior)
            else ParameterPrior.read(space.parameters[name], value)
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


def split_prior(prior: Any) -> tuple[dict[str, Any], tuple[str, ...], list[Any]]:
    """What is known before, apart: values by parameter, earlier sweeps, and sources of trials.

    Args:
        prior: a mapping, "like:SWEEP", a source, or a list of these.
    """
    items = list(prior) if isinstance(prior, list | tuple) else [] if prior is None else [prior]
    expected = {name: v for one in items if isinstance(one, Mapping) for name, v in one.items()}
    learns = tuple(one for one in items if isinstance(one, str) and one.startswith(LIKE))
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


def best_of(sweep: EarlierSweep, metric: str) -> list[Params]:
    """The best configurations of an earlier sweep: 15% of its trials, at least three."""
    losses = np.array(sweep.losses.get(metric, ()), dtype=np.float64)
    order = np.argsort(losses, kind="stable")[: int(np.isfinite(losses).sum())]
    return [sweep.params[i] for i in order[: max(MIN_GOOD, round(GOOD * len(order)))]]


def prior_from_best(
    space: Space, configurations: Sequence[Mapping[str, Value]]
) -> dict[str, ParameterPrior]:
    """A prior around the best configurations of an earlier sweep.

    Numbers get a normal density around each value. Its width follows their standard deviation
    (Silverman, "Density estimation", 1986), and is between 5% and 50% of the range. Choices are
    weighted by how often they occur. Good values of several parameters depend on each other, so the
    product of their densities says too much: its logarithm is divided by the root of their number.
    """
    found: dict[str, ParameterPrior] = {}
    for name, parameter in space.parameters.items():
        values = [
            parameter.accept(params[name])
            for params in configurations
            if name in params and parameter.legal(params[name])
        ]
        if not values or parameter.size == 1:
            continue
        if isinstance(parameter, Choice):
            each = FAVOUR * len(parameter.choices) / 2 / len(values)
            mass = [round(1 + each * n, 3) for n in _counts(parameter, values)]
            best = parameter.choices[int(np.argmax(mass))]
            found[name] = ParameterPrior(parameter, (best,), mass=tuple(mass))
        else:
            apart = float(np.std([parameter.to_unit(value) for value in values]))
            spread = min(max(1.06 * apart * len(values) ** -0.2, 0.05), 0.5)
            found[name] = ParameterPrior(parameter, tuple(values), round(spread, 3))
    return {name: replace(prior, strength=len(found) ** -0.5) for name, prior in found.items()}


def _counts(parameter: Choice, values: Sequence[Value]) -> list[int]:
    """How often each choice is among the values."""
    places = [parameter.index(value) for value in values]
    return [places.count(place) for place in range(len(parameter.choices))]


def truncated_normal(x: Array, centres: Array, spread: float) -> Array:
    """Density of coordinates in [0, 1] around centres, which are broadcast against them."""
    from scipy.special import ndtr

    bumps = np.exp(-0.5 * ((x - centres) / spread) ** 2) / (spread * math.sqrt(2 * math.pi))
    return np.asarray(bumps / (ndtr((1 - centres) / spread) - ndtr(-centres / spread)))
