"""Building a knob's parameters from what it declares and from how its options adjust that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from search_spaces.errors import SpaceError
from search_spaces.parameters import Choice, Float, Int, Parameter, Value

from .base import Dropped

COMPUTES_THE_SAME = frozenset({"speed", "memory"})
CHANGES_THE_RESULT = frozenset({"quality"})

_ADJUSTABLE = ("low", "high", "log", "choices", "ordered", "default", "when", "affects")


def build(name: str, options: Mapping[str, Any], **declared: Any) -> Parameter | None:
    """One parameter, as declared and as `options[name]` adjusts it; None where that is False.

    Args:
        name: of the parameter.
        options: of the knob.
        declared: arguments of `Choice` where `choices` is among them, of `Int` where `low` is an int, else of `Float`.

    Raises:
        SpaceError: the adjustment is malformed.
    """
    given = options.get(name, True)
    if given is False or given is None:
        return None
    adjusted = {**declared, **_adjustment(name, given)}
    if "choices" in adjusted:
        kind: type[Parameter] = Choice
    elif isinstance(adjusted["low"], int) and isinstance(adjusted["high"], int):
        kind = Int
    else:
        kind = Float
    own = ("choices", "ordered") if kind is Choice else ("low", "high", "log")
    wanted = (*own, "default", "when", "affects")
    arguments = {key: value for key, value in adjusted.items() if key in wanted}
    if given is not True and not (isinstance(given, Mapping) and "default" in given):
        arguments["default"] = _fitting(arguments)
    return kind(name, **arguments)


def _adjustment(name: str, given: Any) -> dict[str, Any]:
    if given is True:
        return {}
    if isinstance(given, list | tuple):
        return {"choices": given}
    if not isinstance(given, Mapping):
        raise SpaceError(
            f"{name} is adjusted by False, a list of choices or a mapping, got {given!r}"
        )
    for key in given:
        if key not in _ADJUSTABLE:
            raise SpaceError(f"{name} can be adjusted in {', '.join(_ADJUSTABLE)}; got {key!r}")
    return dict(given)


def _fitting(arguments: Mapping[str, Any]) -> Any:
    """The declared default moved to the nearest value that the adjusted parameter has."""
    default = arguments.get("default")
    if default is None:
        return None
    if "choices" not in arguments:
        return min(max(default, arguments["low"]), arguments["high"])
    choices = list(arguments["choices"])
    numbers = [c for c in choices if isinstance(c, int | float) and not isinstance(c, bool)]
    if default in choices or not choices:
        return default
    if numbers and isinstance(default, int | float) and not isinstance(default, bool):
        return min(numbers, key=lambda c: abs(c - default))
    return choices[0]


def present(*parameters: Parameter | None) -> list[Parameter]:
    """Those that are not None."""
    return [parameter for parameter in parameters if parameter is not None]


def wanted_choices(options: Mapping[str, Any], name: str, declared: Sequence[Value]) -> list[Value]:
    """The choices that the options ask for, else the declared ones."""
    given = options.get(name, True)
    if isinstance(given, Mapping):
        given = given.get("choices", True)
    return list(given) if isinstance(given, list | tuple) else list(declared)


def part(
    knob: str, name: str, choices: Sequence[Value], reasons: Mapping[Value, str]
) -> tuple[list[Value], list[Dropped]]:
    """Part choices into those to keep and those that `reasons` names.

    Raises:
        SpaceError: nothing is left.
    """
    dropped = [Dropped(name, choice, reasons[choice]) for choice in choices if choice in reasons]
    kept = [choice for choice in choices if choice not in reasons]
    if not kept:
        why = "; ".join(map(str, dropped)) or "no choice was given"
        raise SpaceError(f"knob {knob!r} has no value left that this machine can run: {why}")
    return kept, dropped


def narrowed(options: Mapping[str, Any], name: str, kept: Sequence[Value]) -> dict[str, Any]:
    """The options with the choices of one parameter replaced by those that were kept."""
    given = options.get(name, True)
    other = dict(given) if isinstance(given, Mapping) else {}
    if given is False or given is None:
        return dict(options)
    return {**options, name: {**other, "choices": list(kept)}}
