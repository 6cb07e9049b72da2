"""An entry under `space:`: its keys, and the parameter that it and the declaration describe."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from automl.core.arguments import WrongValue
from automl.core.keys import FLAG, Key, Kind, listed, mapped, one_of
from automl.errors import SpaceError, UsageError
from search_spaces import Choice, Float, Int
from search_spaces.knobs.base import nearest_choice
from search_spaces.parameters import Parameter, Value, parameter_from_dict

from .source import shown

ENTRY_RULE: Final = "a list of choices or {low, high, log, type, when, affects, default}"


def _number(name: str, value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongValue(name, "a number", value)
    return value


def _value(name: str, value: Any) -> Value:
    if isinstance(value, list):
        return tuple(_value(name, item) for item in value)
    if isinstance(value, bool | int | float | str | None):
        return value
    raise WrongValue(name, "a number, text, true, false, null or a list of these", value)


def _values(name: str, value: Any) -> tuple[Value, ...]:
    if value == []:
        raise UsageError("at least one value is needed, got an empty list")
    return tuple(_value(name, item) for item in (value if isinstance(value, list) else [value]))


_NUMBER, _ANY = Kind("number", _number), Kind("value", _value)
_SEVERAL = Kind("list of values", _values)
KEYS: Final = {
    "low": Key(_NUMBER, "Least value.", "low: 1e-5", words="the workload's"),
    "high": Key(_NUMBER, "Largest value.", "high: 0.1", words="the workload's"),
    "log": Key(FLAG, "Whether the scale is logarithmic.", "log: true", words="`false`"),
    "step": Key(
        _NUMBER,
        "Distance of the values: low, low + step and so on.",
        "step: 16",
        words="1 for whole numbers",
    ),
    "type": Key(
        one_of("float", "int", "choice"),
        "Kind of the parameter.",
        "type: int",
        words="`int` if both bounds are whole numbers",
    ),
    "choices": Key(_SEVERAL, "Values to choose from.", "choices: [sgd, adam]"),
    "ordered": Key(
        FLAG, "Whether neighbours in the list are alike.", "ordered: true", words="true for numbers"
    ),
    "when": Key(
        mapped(_SEVERAL),
        "The parameter exists only if others have these values.",
        "when: {optimizer: sgd}",
        words="always",
    ),
    "affects": Key(
        listed(one_of("quality", "speed", "memory")),
        "What it can change, see "
        "[affects](../concepts/how-a-sweep-works.md#what-a-parameter-affects).",
        "affects: quality",
        words="all three",
    ),
    "default": Key(_ANY, "Its value in trial 0.", "default: 1e-3"),
}


_OF_NUMBERS: Final = ("low", "high", "log", "step")
_OF_CHOICES: Final = ("choices", "ordered")


def build(
    name: str,
    entry: Mapping[str, Any],
    base: Parameter | None,
    unavailable: Mapping[Value, str],
    slow: Sequence[Value] = (),
) -> Parameter:
    """The parameter that an entry describes.

    Args:
        name: of the parameter.
        entry: the keys that the configuration gives.
        base: declaration of the workload, which supplies the others; None if there is none.
        unavailable: values that this hardware cannot run, with the reason. They are left out.
        slow: values that are not declared because they run slowly. An entry may name them.

    Raises:
        SpaceError: the entry makes no valid parameter.
    """
    kind = _kind(name, entry, base)
    apart = _OF_NUMBERS if kind == "choice" else _OF_CHOICES
    if wrong := [key for key in apart if key in entry]:
        raise SpaceError(f"{name} is of type {kind}, which has no {wrong[0]!r}")
    declared = {} if base is None else base.to_dict()
    default = declared.pop("default", None)
    inherited = {key: value for key, value in declared.items() if key not in apart}
    data = {**inherited, **entry, "type": kind, "name": name}
    if kind == "choice":
        known = declared.get("choices", ())
        choices = data.get("choices", known)
        if base is not None:
            for value in choices:
                _check_kind(name, value, base, [*dict.fromkeys([*known, *unavailable, *slow])])
        data["choices"] = [value for value in choices if value not in unavailable]
        if choices and not data["choices"]:
            reasons = "; ".join(f"{value}: {unavailable[value]}" for value in choices)
            raise SpaceError(f"none of the choices of {name} can run on this hardware ({reasons})")
        numbers = all(map(_is_number, data["choices"]))
        data.setdefault("ordered", numbers and not isinstance(base, Choice))
    elif lacks := [bound for bound in ("low", "high") if bound not in data]:
        raise SpaceError(f"{name} needs {lacks[0]}")
    elif kind == "int":
        whole = ("low", "high", "step", "default")
        data |= {key: _whole(data[key]) for key in whole if key in data}
    if kind != "choice" and data.get("default", 0) is None:
        del data["default"]
    made = parameter_from_dict(data)
    if "default" in data or base is None or not base.has_default:
        return made
    nearest = nearest_choice(default, data["choices"]) if isinstance(made, Choice) else None
    if isinstance(made, Float | Int) and _is_number(default):
        nearest = made.nearest(default)
    return parameter_from_dict({**data, "default": nearest})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(value: Any) -> Any:
    """An integer for a float such as 3.0; any other value unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _kind(name: str, entry: Mapping[str, Any], base: Parameter | None) -> str:
    bounds = [entry[key] for key in ("low", "high") if key in entry]
    if "type" in entry:
        return str(entry["type"])
    if "choices" in entry:
        return "choice"
    if base is not None and not (isinstance(base, Choice) and bounds):
        return base.kind
    if not bounds:
        raise SpaceError(f"{name} needs low and high, or choices")
    return "int" if all(isinstance(bound, int) for bound in bounds) else "float"


def _check_kind(name: str, value: Value, base: Parameter, known: Sequence[Value]) -> None:
    """Check a choice: a word must be a declared one, a number may be any."""
    close: Sequence[str] = ()
    if not isinstance(base, Float | Int) and any(isinstance(one, str | bool) for one in known):
        fits = any(one == value and type(one) is type(value) for one in known)
        rule = f"one of {', '.join(map(str, known))}"
        close = difflib.get_close_matches(str(value), map(str, known), n=1)
    else:
        whole = isinstance(base, Int)
        fits = _is_number(value) and (isinstance(value, int) or not whole)
        rule = "a whole number" if whole else "a number"
    if not fits:
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise SpaceError(f"each choice of {name} must be {rule}, got {shown(value)}{hint}")
