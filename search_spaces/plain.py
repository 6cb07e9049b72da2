"""A search space as plain Python data: `{"lr": (1e-5, 0.1), "optimizer": ["sgd", "adam"]}`."""

from collections.abc import Iterable, Mapping
from inspect import signature
from typing import Any, Final

from .errors import SpaceError
from .other_tools import WORDS
from .parameters import KINDS, Choice, Parameter, parameter_from_dict
from .space import Space
from .validation import check, plain, show

_KEYS: Final = {key for kind in KINDS.values() for key in signature(kind).parameters}
_FORMS: Final = (
    "(low, high) with two numbers, a list of choices, a mapping such as "
    "{'low': 1e-5, 'high': 0.1, 'log': True}, or a Float, Int or Choice"
)


def read_space(given: Any) -> Space:
    """The space that a user gives.

    Args:
        given: a `Space`, a list of parameters, or a mapping of names to ranges. (0, 10) is a range
            of whole numbers, (0.0, 10.0) one of real numbers, ["a", "b"] a choice, and a mapping
            has the arguments of the parameter.

    Raises:
        SpaceError: it is none of these, or an entry is malformed.
    """
    if isinstance(given, Mapping):
        given = Space(*(_parameter(name, entry) for name, entry in given.items()))
    elif isinstance(given, Iterable) and not isinstance(given, str | bytes | Space):
        given = Space(*given)
    if isinstance(given, Space):
        check(given.parameters, "a space needs at least one parameter, got none")
        return given
    raise SpaceError(
        "a space is a Space or a mapping of names to ranges, such as "
        f"{{'lr': (1e-5, 0.1), 'optimizer': ['sgd', 'adam']}}; got {show(given)}"
    )


def ambiguous(given: Any, form: str = "({!r}, {!r})") -> list[str]:
    """A line for each range of a mapping that may mean something else: what was understood.

    Args:
        given: a search space as plain data.
        form: how a range of real numbers is written there.
    """
    found = []
    for name, entry in given.items() if isinstance(given, Mapping) else ():
        is_short = isinstance(entry, Mapping) and set(entry) == {"low", "high"}
        ends = (entry["low"], entry["high"]) if is_short else entry
        is_range = isinstance(ends, tuple | list) and len(ends) == 2 and _kind(*ends) != ""
        if not is_range or ends[0] >= ends[1]:
            continue
        low, high = ends
        between = f"for the numbers between them write {form.format(float(low), float(high))}"
        if isinstance(ends, tuple) and _kind(low, high) == "int" and high - low == 1:
            found.append(f"{name}: {entry!r} is the whole numbers {low} and {high}; {between}")
        elif isinstance(entry, list) and _kind(low, high) == "float":
            found.append(f"{name}: {entry!r} is a choice of two values; {between}")
    return found


def _parameter(name: Any, entry: Any) -> Parameter:
    if isinstance(entry, Parameter):
        check(entry.name == name, f"{show(name)} is a parameter with another name, {entry.name!r}")
        return entry
    if isinstance(entry, list):
        return Choice(name, entry)
    if isinstance(entry, Mapping) and entry:
        for key in entry:
            hint = "" if key in _KEYS else WORDS.get(key, "")
            check(not hint, f"{show(name)}: a range has no key {key!r}; {hint}")
        kind = _kind(entry.get("low"), entry.get("high")) or "float"
        kind = "choice" if "choices" in entry else kind
        return parameter_from_dict({"type": kind, **entry, "name": name})
    if isinstance(entry, tuple) and len(entry) == 2 and (kind := _kind(*entry)):
        return parameter_from_dict({"type": kind, "name": name, "low": entry[0], "high": entry[1]})
    raise SpaceError(f"the range of {show(name)} must be {_FORMS}; got {show(entry)}")


def _kind(low: Any, high: Any) -> str:
    """The type of a range: "int" if both bounds are whole numbers, "" if one is no number."""
    kinds = {type(plain(low)), type(plain(high))}
    return "int" if kinds == {int} else "float" if kinds <= {int, float} else ""
