"""Builds a parameter from an entry under `space:` and the workload's declaration of it."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from automl.errors import SpaceError
from search_spaces import Choice, Float, Int
from search_spaces.parameters import Parameter, Value

from .nodes import shown
from .schema import Entry, whole


def build(
    name: str,
    entry: Entry,
    base: Parameter | None,
    unavailable: dict[Value, str],
    slow: Sequence[Value] = (),
) -> Parameter:
    """The parameter that an entry describes.

    Args:
        name: of the parameter.
        entry: from the configuration.
        base: declaration of the workload, which supplies missing keys; None if there is none.
        unavailable: values that this hardware cannot run, with the reason. They are left out.
        slow: values that are not declared because they run slowly. An entry may name them.

    Raises:
        SpaceError: the entry makes no valid parameter.
    """
    kind = _kind(name, entry, base)
    if kind == "choice":
        return _choice(name, entry, base, unavailable, slow)
    _refuse(name, kind, {"choices": entry.choices, "ordered": entry.ordered})
    numeric = base if isinstance(base, Float | Int) else None
    low, high = _bound(name, "low", entry, numeric), _bound(name, "high", entry, numeric)
    log = entry.log if entry.log is not None else bool(numeric and numeric.log)
    step = entry.step if entry.step is not None else numeric and numeric.step
    common: dict[str, Any] = {"log": log, "step": step, **_common(entry, base)}
    if kind == "int":
        common["step"] = 1 if step is None else whole(step)
        low, high = whole(low), whole(high)
    number: type[Float | Int] = Int if kind == "int" else Float
    default = whole(entry.default) if kind == "int" else entry.default
    declared = base.default if base is not None else None
    if default is None and isinstance(declared, int | float):
        default = number(name, low, high, **common).nearest(declared)  # type: ignore[arg-type]
    return number(name, low, high, default=default, **common)  # type: ignore[arg-type]


def _kind(name: str, entry: Entry, base: Parameter | None) -> str:
    if entry.type:
        return entry.type
    bounds = [bound for bound in (entry.low, entry.high) if bound is not None]
    if entry.choices is not None:
        return "choice"
    if base is not None and not (isinstance(base, Choice) and bounds):
        return base.kind
    if not bounds:
        raise SpaceError(f"{name} needs low and high, or choices")
    return "int" if all(isinstance(bound, int) for bound in bounds) else "float"


def _bound(name: str, which: str, entry: Entry, base: Float | Int | None) -> float:
    bound: float | None = getattr(entry, which)
    if bound is None:
        bound = getattr(base, which, None)
    if bound is None:
        raise SpaceError(f"{name} needs {which}")
    return bound


def _choice(
    name: str,
    entry: Entry,
    base: Parameter | None,
    unavailable: dict[Value, str],
    slow: Sequence[Value],
) -> Choice:
    given = {"low": entry.low, "high": entry.high, "log": entry.log, "step": entry.step}
    _refuse(name, "choice", given)
    declared = base.choices if isinstance(base, Choice) else ()
    choices = entry.choices if entry.choices is not None else declared
    if base is not None:
        for value in choices:
            _check_kind(name, value, base, [*dict.fromkeys([*declared, *unavailable, *slow])])
    left = [value for value in choices if value not in unavailable]
    if choices and not left:
        reasons = "; ".join(f"{value}: {unavailable[value]}" for value in choices)
        raise SpaceError(f"none of the choices of {name} can run on this hardware ({reasons})")
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in left)
    ordered = base.ordered if isinstance(base, Choice) else numbers
    if entry.ordered is not None:
        ordered = entry.ordered
    common = _common(entry, base)
    if "default" in entry.model_fields_set:
        common["default"] = entry.default
    elif base is not None and base.has_default:
        common["default"] = _nearest_choice(base.default, left)
    return Choice(name, left, ordered=ordered, **common)


def _check_kind(name: str, value: Value, base: Parameter, known: list[Value]) -> None:
    """Check a choice: a word must be a declared one, a number may be any."""
    if isinstance(base, Float | Int):
        fits = not isinstance(value, bool | str) and (
            isinstance(base, Float) or isinstance(value, int)
        )
        rule = "a number" if isinstance(base, Float) else "a whole number"
    elif any(isinstance(item, str | bool) for item in known):
        fits = any(item == value and type(item) is type(value) for item in known)
        rule = f"one of {', '.join(map(str, known))}"
    else:
        fits, rule = not isinstance(value, bool | str), "a number"
    if not fits:
        close = difflib.get_close_matches(str(value), map(str, known), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise SpaceError(f"each choice of {name} must be {rule}, got {shown(value)}{hint}")


def _nearest_choice(default: Value, choices: list[Value]) -> Value:
    """The default if it is a choice, else the number nearest to it, else the first choice."""
    if default in choices or isinstance(default, bool) or not isinstance(default, int | float):
        return default if default in choices else choices[0]
    numbers = [value for value in choices if isinstance(value, int | float)]
    return min(numbers, key=lambda value: abs(value - default)) if numbers else choices[0]


def _common(entry: Entry, base: Parameter | None) -> dict[str, Any]:
    inherited = {"when": base.when, "affects": base.affects} if base else {}
    given = {"when": entry.when, "affects": entry.affects}
    return inherited | {key: value for key, value in given.items() if value is not None}


def _refuse(name: str, kind: str, given: Mapping[str, object]) -> None:
    wrong = [key for key, value in given.items() if value is not None]
    if wrong:
        raise SpaceError(f"{name} is of type {kind}, which has no {wrong[0]!r}")
