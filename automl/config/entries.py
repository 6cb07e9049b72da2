"""An entry under `space:`: its keys, and the parameter that it and the declaration describe."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from automl.core.arguments import WrongValue
from automl.core.keys import FLAG, Key, Kind, listed, mapped, one_of, read_keys
from automl.errors import SpaceError, UsageError
from search_spaces import Choice, Float, Int
from search_spaces.parameters import Parameter, Value

from .nodes import ConfigProblems, Node, shown
from .schema import add_errors

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


class Entry(dict[str, Any]):
    """The values of the keys that an entry has; another key is None."""

    def __missing__(self, key: str) -> None:
        return None


def read_entry(
    given: Any,
    base: Parameter | None,
    root: Node,
    name: str,
    problems: ConfigProblems,
    unavailable: Mapping[Value, str] | None = None,
    slow: Sequence[Value] | None = None,
) -> tuple[Parameter, Entry] | None:
    """The parameter that an entry describes, and the entry; None, with problems, if it is wrong.

    Args:
        given: the plain value of the entry: a list of choices, or a mapping.
        base, unavailable, slow: see `build`; if `slow` is None, an entry may name any word.
        root: the configuration, for the lines of errors.
        name: of the parameter.
        problems: receives errors.
    """
    where = ("space", name)
    given = {"choices": given} if isinstance(given, list) else given
    if not isinstance(given, dict):
        problems.under(root, where, f"{ENTRY_RULE} is needed, got {shown(given)}")
        return None
    try:
        entry = Entry(read_keys(KEYS, given))
        if slow is None:
            slow = (entry["choices"] or ()) if isinstance(base, Choice) else ()
        return build(name, entry, base, unavailable or {}, slow), entry
    except UsageError as error:
        add_errors(error, root, where, problems)
    return None


def build(
    name: str,
    entry: Entry,
    base: Parameter | None,
    unavailable: Mapping[Value, str],
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
    _refuse(name, kind, entry, ("choices", "ordered"))
    numeric = base if isinstance(base, Float | Int) else None
    low, high = _bound(name, "low", entry, numeric), _bound(name, "high", entry, numeric)
    log = entry["log"] if entry["log"] is not None else bool(numeric and numeric.log)
    step = entry["step"] if entry["step"] is not None else numeric and numeric.step
    common: dict[str, Any] = {"log": log, "step": step, **_common(entry, base)}
    if kind == "int":
        common["step"] = 1 if step is None else _whole(step)
        low, high = _whole(low), _whole(high)
    number: type[Float | Int] = Int if kind == "int" else Float
    default = _whole(entry["default"]) if kind == "int" else entry["default"]
    declared = base.default if base is not None else None
    if default is None and isinstance(declared, int | float):
        default = number(name, low, high, **common).nearest(declared)  # type: ignore[arg-type]
    return number(name, low, high, default=default, **common)  # type: ignore[arg-type]


def _whole(value: Any) -> Any:
    """An integer for a float such as 3.0; any other value unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _kind(name: str, entry: Entry, base: Parameter | None) -> str:
    if entry["type"]:
        return str(entry["type"])
    bounds = [bound for bound in (entry["low"], entry["high"]) if bound is not None]
    if entry["choices"] is not None:
        return "choice"
    if base is not None and not (isinstance(base, Choice) and bounds):
        return base.kind
    if not bounds:
        raise SpaceError(f"{name} needs low and high, or choices")
    return "int" if all(isinstance(bound, int) for bound in bounds) else "float"


def _bound(name: str, which: str, entry: Entry, base: Float | Int | None) -> float:
    bound: float | None = entry[which]
    if bound is None:
        bound = getattr(base, which, None)
    if bound is None:
        raise SpaceError(f"{name} needs {which}")
    return bound


def _choice(
    name: str,
    entry: Entry,
    base: Parameter | None,
    unavailable: Mapping[Value, str],
    slow: Sequence[Value],
) -> Choice:
    _refuse(name, "choice", entry, ("low", "high", "log", "step"))
    declared = base.choices if isinstance(base, Choice) else ()
    choices = entry["choices"] if entry["choices"] is not None else declared
    if base is not None:
        for value in choices:
            _check_kind(name, value, base, [*dict.fromkeys([*declared, *unavailable, *slow])])
    left = [value for value in choices if value not in unavailable]
    if choices and not left:
        reasons = "; ".join(f"{value}: {unavailable[value]}" for value in choices)
        raise SpaceError(f"none of the choices of {name} can run on this hardware ({reasons})")
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in left)
    ordered = base.ordered if isinstance(base, Choice) else numbers
    if entry["ordered"] is not None:
        ordered = entry["ordered"]
    common = _common(entry, base)
    if "default" in entry:
        common["default"] = entry["default"]
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
    given = {key: entry[key] for key in ("when", "affects") if entry[key] is not None}
    return inherited | given


def _refuse(name: str, kind: str, entry: Entry, keys: Sequence[str]) -> None:
    if wrong := [key for key in keys if entry[key] is not None]:
        raise SpaceError(f"{name} is of type {kind}, which has no {wrong[0]!r}")
