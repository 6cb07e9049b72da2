"""Beliefs about good values: a density per parameter over its unit interval, after piBO.

Hvarfner et al., "piBO: Augmenting acquisition functions with user beliefs for Bayesian optimization" (ICLR 2022): the
acquisition is multiplied by the belief to the power beta / n, so that after n trials what was measured has the say.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from automl.errors import UsageError
from search_spaces import Choice, Space
from search_spaces.parameters import Parameter, Value
from search_spaces.plugins import nearest

Array = NDArray[np.float64]
SPREAD: Final = 0.15  # of the parameter's range, where the person gives none
FAVOUR: Final = 4.0  # weight of a choice that is believed in, beside 1 of the others
FLOOR: Final = (
    0.1  # share of the density that is uniform: a wrong belief must not rule anything out
)
BETA: Final = 10.0  # piBO's beta: after so many trials, the belief weighs as much as one factor of the acquisition
_KEYS = ("at", "spread", "weights")


@dataclass(frozen=True)
class Belief:
    """Where one parameter's good values are thought to be.

    Args:
        parameter: that it is about.
        at: values near which they are; spread: standard deviation around each, as a part of the range (of its
            logarithm where the parameter is logarithmic). For an unordered choice, those that are favoured.
        weights: of choices, by value; what is not named weighs 1.
    """

    parameter: Parameter
    at: tuple[Value, ...] = ()
    spread: float = SPREAD
    weights: tuple[tuple[Value, float], ...] = ()

    @classmethod
    def read(cls, parameter: Parameter, given: Any) -> Belief:
        """A belief as people write it: a value, a list of values, or `{at, spread}`, or `{weights: {VALUE: WEIGHT}}`.

        Raises:
            UsageError: it has another form, or names a value that the parameter cannot have.
        """
        name = parameter.name
        if not isinstance(given, Mapping):
            given = {"at": given}
        if unknown := [key for key in given if key not in _KEYS]:
            raise UsageError(
                f"a belief about {name} has at, spread and weights, got {unknown[0]!r}"
            )
        if not ("at" in given) ^ ("weights" in given):
            raise UsageError(
                f"a belief about {name} says either at or weights, got {dict(given)!r}"
            )
        spread = given.get("spread", SPREAD)
        if isinstance(spread, bool) or not isinstance(spread, int | float) or not 0 < spread <= 1:
            raise UsageError(
                f"the spread of a belief about {name} is more than 0 and at most 1, got {spread!r}"
            )
        if given.get("at", True) in ([], ()) or given.get("weights", True) in ({}, None):
            raise UsageError(f"a belief about {name} names at least one value, got {dict(given)!r}")
        at = given.get("at", ())
        values = tuple(
            _legal(parameter, value) for value in (at if isinstance(at, list | tuple) else [at])
        )
        return cls(parameter, values, float(spread), _weights(parameter, given.get("weights", {})))

    def to_dict(self) -> dict[str, Any]:
        """As JSON data, which `read` understands."""
        if self.weights:
            return {"weights": {str(value): weight for value, weight in self.weights}}
        return {"at": list(self.at), "spread": self.spread}

    def density(self, unit: Array) -> Array:
        """Of `m` coordinates in [0, 1], relative to uniform; 1 where the parameter is inactive (NaN)."""
        if (mass := self._mass()) is not None:
            cells = np.minimum((np.nan_to_num(unit) * len(mass)).astype(int), len(mass) - 1)
            found = mass[cells] * len(mass)
        else:
            centres = self._centres()
            apart = (np.nan_to_num(unit)[:, None] - centres) / self.spread
            bumps = np.exp(-0.5 * apart**2) / (self.spread * math.sqrt(2 * math.pi))
            inside = np.array(
                [_normal((1 - c) / self.spread) - _normal(-c / self.spread) for c in centres]
            )
            found = (bumps / inside).mean(1)
        return np.where(np.isnan(unit), 1.0, FLOOR + (1 - FLOOR) * found)

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """`count` coordinates from the density."""
        if (mass := self._mass()) is not None:
            found = (rng.choice(len(mass), size=count, p=mass) + 0.5) / len(mass)
        else:
            centres = self._centres()
            found = rng.choice(centres, size=count) + self.spread * rng.standard_normal(count)
            found = np.abs(found)
            found = np.where(
                found > 1, 2 - found, found
            )  # reflected, which for such narrow bumps is near enough
        return np.where(rng.random(count) < FLOOR, rng.random(count), np.clip(found, 0.0, 1.0))

    @property
    def mode(self) -> Value:
        """The value that is believed in most."""
        if self.weights:
            return max(self.weights, key=lambda item: item[1])[0]
        return self.at[0]

    def _centres(self) -> Array:
        return np.array([self.parameter.to_unit(value) for value in self.at])

    def _mass(self) -> Array | None:
        """Probability of each choice; None for what has an order, and no weights."""
        if not isinstance(self.parameter, Choice) or (self.parameter.ordered and not self.weights):
            return None
        mass = np.ones(len(self.parameter.choices))
        for value in self.at:
            mass[self.parameter.index(value)] += (
                (FAVOUR - 1) * len(self.parameter.choices) / 2 / len(self.at)
            )
        for value, weight in self.weights:
            mass[self.parameter.index(value)] = weight
        shares: Array = mass / mass.sum()
        return shares

    def __str__(self) -> str:
        from automl.core.text import number

        if self.weights:
            return ", ".join(f"{number(value)} ({weight:g})" for value, weight in self.weights)
        values = " or ".join(number(value) for value in self.at[:4]) + (
            " or ..." if len(self.at) > 4 else ""
        )
        return (
            values
            if self._mass() is not None
            else f"near {values}, within about {self.spread:.0%} of the range"
        )


class Beliefs:
    """The beliefs about one space, which are taken as independent of each other.

    Args:
        space: what is tuned; given: a belief by parameter, as `Belief.read` takes them.

    Raises:
        UsageError: a parameter is unknown, or a belief does not fit it.
    """

    def __init__(self, space: Space, given: Mapping[str, Any]) -> None:
        self.space = space
        for name in given:
            if name not in space.parameters:
                raise UsageError(
                    f"a belief about {name!r}, which is not tuned: {nearest(name, list(space.parameters))}"
                )
        self.by_name = {
            name: Belief.read(space.parameters[name], value) for name, value in given.items()
        }
        self._columns = [
            (list(space.parameters).index(name), belief) for name, belief in self.by_name.items()
        ]

    def __bool__(self) -> bool:
        return bool(self.by_name)

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return {name: belief.to_dict() for name, belief in self.by_name.items()}

    def log_density(self, unit: Array) -> Array:
        """`m`, of configurations `m x d` in the unit cube."""
        total = np.zeros(len(unit))
        for column, belief in self._columns:
            total += np.log(belief.density(unit[:, column]))
        return total

    def draw(self, rng: np.random.Generator, points: Array) -> Array:
        """The points `m x d` with what is believed in drawn anew."""
        found = points.copy()
        for column, belief in self._columns:
            found[:, column] = belief.draw(rng, len(points))
        return found

    def mode(self) -> dict[str, Value]:
        """The values that are believed in most."""
        return {name: belief.mode for name, belief in self.by_name.items()}


def without(given: Mapping[str, Any], gone: Container[tuple[str, str | None]]) -> dict[str, Any]:
    """The beliefs without what this hardware cannot run.

    Args:
        gone: names and values, as text, that are not tried; None for a whole parameter.
    """
    found: dict[str, Any] = {}
    for name, belief in given.items():
        left = belief
        if isinstance(belief, Mapping) and isinstance(belief.get("weights"), Mapping):
            weights = {
                value: w for value, w in belief["weights"].items() if (name, str(value)) not in gone
            }
            left = {**belief, "weights": weights} if weights else None
        elif not isinstance(belief, Mapping):
            kept = [
                v
                for v in (belief if isinstance(belief, list) else [belief])
                if (name, str(v)) not in gone
            ]
            left = kept or None
        if left is not None and (name, None) not in gone:
            found[name] = left
    return found


def learned(space: Space, configurations: Sequence[Mapping[str, Value]]) -> dict[str, Any]:
    """Beliefs from the best configurations of an earlier sweep, the best first: good values lie near theirs.

    Numbers get a bump around each, as wide as they are apart (Silverman, "Density estimation", 1986) and at least a
    twentieth of the range; choices are weighted by how often they occur.
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
                "weights": {str(c): round(1 + each * values.count(c), 3) for c in parameter.choices}
            }
        else:
            apart = float(np.std([parameter.to_unit(value) for value in values]))
            spread = min(max(1.06 * apart * len(values) ** -0.2, 0.05), 0.5)
            found[name] = {"at": values, "spread": round(spread, 3)}
    return found


def _legal(parameter: Parameter, value: Any) -> Value:
    known = {str(c): c for c in parameter.choices} if isinstance(parameter, Choice) else {}
    value = known.get(value, value) if isinstance(value, str) else value
    if (
        not parameter.legal(value)
        and isinstance(value, float)
        and value.is_integer()
        and parameter.legal(int(value))
    ):
        value = int(value)
    parameter.check(value)
    return parameter.canonical(value)


def _weights(parameter: Parameter, given: Any) -> tuple[tuple[Value, float], ...]:
    if not given:
        return ()
    if not isinstance(parameter, Choice) or not isinstance(given, Mapping):
        raise UsageError(
            f"weights are of the choices of a parameter, {parameter.name} has {given!r}"
        )
    found = []
    for value, weight in given.items():
        if (
            isinstance(weight, bool)
            or not isinstance(weight, int | float)
            or not 0 < weight < math.inf
        ):
            raise UsageError(
                f"the weight of {parameter.name}={value} is a positive number, got {weight!r}"
            )
        found.append((_legal(parameter, value), float(weight)))
    return tuple(found)


def _normal(z: float) -> float:
    """The normal distribution function."""
    return 0.5 * math.erfc(-z / math.sqrt(2))
