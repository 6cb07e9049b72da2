"""Limits: parameters of a sweep pinned to a value, or narrowed to part of what may be tried, and the space within."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from automl.core.events import Command
from automl.errors import SpaceError, UsageError
from search_spaces import Choice, Float, Int, Space
from search_spaces.parameters import Parameter, Value, parameter_from_dict
from search_spaces.plugins import nearest


@dataclass(frozen=True)
class Limit:
    """What may still be tried of one parameter: some of its choices, or a part of its range.

    Args:
        choices: of a `Choice`, in its order.
        low, high: of a number, both included; equal where it is pinned.
    """

    choices: tuple[Value, ...] = ()
    low: float | int | None = None
    high: float | int | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return (
            {"choices": list(self.choices)}
            if self.choices
            else {"low": self.low, "high": self.high}
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Limit:
        """The inverse of `to_dict`."""
        return cls(tuple(data.get("choices", ())), data.get("low"), data.get("high"))

    def __str__(self) -> str:
        if self.choices:
            return ", ".join(map(_short, self.choices))
        return (
            _short(self.low)
            if self.low == self.high
            else f"{_short(self.low)} to {_short(self.high)}"
        )


Limits = Mapping[str, Limit]


def read(text: str, space: Space) -> tuple[str, Limit]:
    """A limit as people write it: `KEY=VALUE`, `KEY=LOW..HIGH` or `KEY=[VALUE,VALUE]`.

    Raises:
        UsageError: the text is malformed, the parameter is unknown, or a value is none that it can have.
    """
    parameter, raw = split(text, space, "a limit is KEY=VALUE, KEY=LOW..HIGH or KEY=[VALUE,VALUE]")
    parts = raw[1:-1].split(",") if raw.startswith("[") and raw.endswith("]") else raw.split("..")
    return parameter.name, _limit(
        parameter, [value_of(parameter, part.strip()) for part in parts], text
    )


def split(text: str, space: Space, rule: str = "a setting is KEY=VALUE") -> tuple[Parameter, str]:
    """The parameter that `KEY=VALUE` names, and the text of its value; raises UsageError where there is none."""
    key, equals, raw = text.partition("=")
    if not equals or not raw:
        raise UsageError(f"{rule}, got {text!r}")
    if key not in space.parameters:
        raise UsageError(f"the sweep tunes no {key!r}: {nearest(key, list(space.parameters))}")
    return space.parameters[key], raw


def value_of(parameter: Parameter, raw: str) -> Value:
    """A parameter's value as it is typed; raises UsageError where the parameter cannot have it."""
    from automl.config.scalars import plain_scalar

    if isinstance(parameter, Choice) and raw in (
        known := {str(choice): choice for choice in parameter.choices}
    ):
        return known[raw]
    try:
        value: Any = plain_scalar(raw)
    except ValueError as error:
        raise UsageError(f"{parameter.name}: {error}") from error
    if isinstance(parameter, Int) and isinstance(value, float) and value.is_integer():
        value = int(value)
    parameter.check(value)
    return parameter.canonical(value)


def _limit(parameter: Parameter, values: list[Any], text: str) -> Limit:
    if isinstance(parameter, Choice):
        if ".." in text and not text.endswith("]"):
            low, high = sorted(parameter.index(value) for value in (values[0], values[-1]))
            return Limit(parameter.choices[low : high + 1])
        return Limit(tuple(choice for choice in parameter.choices if choice in values))
    if len(values) > 2 or (len(values) == 2 and values[0] > values[1]):
        raise UsageError(f"the range of a number is {parameter.name}=LOW..HIGH, got {text!r}")
    return Limit(low=values[0], high=values[-1])


def narrowed(space: Space, limits: Limits) -> Space:
    """The part of a space that limits leave; a parameter that can no longer be active is left out.

    Raises:
        UsageError: a limit does not fit the space, or no configuration is left.
    """
    import numpy as np

    kept: dict[str, Parameter] = {}
    for name, parameter in space.parameters.items():
        when = {
            parent: [value for value in values if parent in kept and kept[parent].legal(value)]
            for parent, values in parameter.when.items()
        }
        if all(when.values()):
            kept[name] = _within(parameter, limits.get(name), when)
    constraints = [c for c in space.constraints if all(name in kept for name in c.names)]
    try:
        found = Space(*kept.values(), constraints=constraints)
        found.sample(np.random.default_rng(0))
        return found
    except SpaceError as error:
        told = "; ".join(f"{name}: {limit}" for name, limit in limits.items())
        raise UsageError(f"no configuration is left within {told} ({error})") from error


def _within(
    parameter: Parameter, limit: Limit | None, when: Mapping[str, list[Value]]
) -> Parameter:
    data = {**parameter.to_dict(), **({"when": dict(when)} if when else {})}
    if limit is not None:
        data |= {key: value for key, value in limit.to_dict().items() if key in data}
    default = data.pop("default", None)
    if default is None or limit is None:
        return parameter_from_dict(data if default is None else {**data, "default": default})
    if limit.choices:
        return parameter_from_dict(
            {**data, "default": default if default in limit.choices else limit.choices[0]}
        )
    return parameter_from_dict({**data, "default": min(max(default, data["low"]), data["high"])})


def fold(wishes: Iterable[Command], before: Limits | None = None) -> dict[str, Limit]:
    """The limits that hold after these wishes of the kind "limits", by parameter."""
    found = dict(before or {})
    for wish in wishes:
        for name, data in wish.content.items():
            found.pop(name, None)
            if data is not None:
                found[name] = Limit.from_dict(data)
    return found


def inside(params: Mapping[str, Value], narrow: Space) -> dict[str, Value]:
    """The configuration with numbers that rounding has put outside of their range back in it."""
    found = dict(params)
    for name, value in params.items():
        parameter = narrow.parameters.get(name)
        if isinstance(parameter, Float) and isinstance(value, float):
            found[name] = min(max(value, parameter.low), parameter.high)
    return found


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
