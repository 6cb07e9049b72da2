"""Validation of the arguments of parameters: values, names, bounds, conditions, effects."""

import math
import unicodedata
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import NoneType
from typing import Any, Final

import numpy as np

from .errors import SpaceError

Value = bool | int | float | str | tuple[Any, ...] | None
Params = Mapping[str, Value]
When = Mapping[str, Value | Sequence[Value]]

ALL: Final = frozenset({"quality", "speed", "memory"})
MAX_INT: Final = 2**63 - 1
MAX_NAME: Final = 100
ROUNDING: Final = 1e-12  # relative: real numbers that differ by less are the same


def plain(value: Any) -> Any:
    """The plain Python value of a NumPy scalar or an enumeration member; -0.0 becomes 0.0.

    A list becomes a tuple, so that it can be compared and looked up; JSON gives it back as a list.
    """
    if type(value) in (str, int, bool, NoneType):
        return value
    if isinstance(value, np.floating):  # float32(0.3) is 0.3, not 0.30000001192
        value = float(value if value.dtype.itemsize >= 8 else str(value))
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return tuple(map(plain, value))
    if isinstance(value, bool):
        return value
    if isinstance(value, float):
        return float(value) + 0.0
    if isinstance(value, int):
        return int(value)
    return str.__str__(value) if isinstance(value, str) else value


def plain_params(params: Params) -> dict[str, Value]:
    """A configuration with plain values, such as one that JSON has changed."""
    return {name: plain(value) for name, value in params.items()}


def identity(value: Value) -> Hashable:
    """What tells a plain value from others: True differs from 1, and 1.0 does not.

    Example:
        >>> identity(1) == identity(1.0), identity(1) == identity(True)
        (True, False)
    """
    if isinstance(value, tuple):
        return tuple(map(identity, value))
    return (isinstance(value, bool), value)


def same(first: Value, second: Value) -> bool:
    """Whether two plain values are the same, real numbers up to their rounding."""
    if isinstance(first, tuple) and isinstance(second, tuple):
        return len(first) == len(second) and all(map(same, first, second))
    if {type(first), type(second)} in ({float}, {int, float}):
        with suppress(OverflowError):  # of an int beyond all floats
            return math.isclose(first, second, rel_tol=ROUNDING)  # type: ignore[arg-type]
    return identity(first) == identity(second)


def among(value: Value, values: Iterable[Value]) -> bool:
    """Whether a plain value is one of these."""
    return any(same(value, other) for other in values)


def number_of(text: str) -> int | float | None:
    """The number that a text from a shell or a table is; None if it is none."""
    text = text.strip()
    for kind in (int, float) if "_" not in text else ():
        with suppress(ValueError):
            return kind(text)
    return None


def is_value(value: object) -> bool:
    """Whether it is None, a bool, an int, a finite float, UTF-8 text, or a tuple of these."""
    if value is None or isinstance(value, tuple):
        return value is None or all(map(is_value, value))
    if isinstance(value, str):
        return value.isprintable() or not any("\ud800" <= c <= "\udfff" for c in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, bool | int)


def show(value: object) -> str:
    """The repr of a value for a message, shortened to 100 characters."""
    try:
        text = repr(value)
    except Exception:  # of a foreign class, or of an int with thousands of digits
        return f"<{type(value).__name__} that cannot be shown>"
    return text if len(text) <= 100 else f"{text[:97]}..."


def checked_name(name: object) -> str:
    """The name; raises SpaceError unless it is identifiers, with hyphens too, joined by dots."""
    fits = (
        isinstance(name, str)
        and all(part.replace("-", "_").isidentifier() for part in name.split("."))
        and all(part.strip("-") == part for part in name.split("."))
        and unicodedata.normalize("NFKC", name) == name
    )
    if not isinstance(name, str) or not fits or len(name) > MAX_NAME:
        raise SpaceError(
            "a parameter's name is made of letters, digits and underscores, with hyphens between "
            "them, does not begin with a digit, may join such parts by dots (model.lr), "
            f"and has at most {MAX_NAME} characters; got {show(name)}"
        )
    return name


def checked_flag(name: str, flag: str, value: object) -> bool:
    """The flag; raises SpaceError unless it is True or False."""
    if not isinstance(value, bool):
        raise SpaceError(f"{flag} of {show(name)} must be True or False, got {show(value)}")
    return value


def checked_bound(name: object, which: str, value: object) -> float:
    """The bound as a float; raises SpaceError unless it is finite."""
    value = plain(value)
    bound = math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError):
            bound = float(value)
    if not math.isfinite(bound):
        raise SpaceError(f"{which} of {show(name)} must be a finite number, got {show(value)}")
    return bound


def checked_int_bound(name: object, which: str, value: object) -> int:
    """The bound; raises SpaceError unless it is an int of at most 64 bits."""
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, int):
        real = isinstance(value, float) and math.isfinite(value)
        hint = "; use Float for real numbers" if real else ""
        raise SpaceError(f"{which} of {show(name)} must be an integer, got {show(value)}{hint}")
    if abs(value) > MAX_INT:
        raise SpaceError(
            f"{which} of {show(name)} must lie within plus or minus 2**63 - 1, got {show(value)}"
        )
    return int(value)


def checked_step(name: object, step: object, *, log: bool, whole: bool) -> float | int | None:
    """The step; raises SpaceError unless it is None or above 0, and not on a logarithmic scale."""
    if step is None:
        return None
    checked = checked_int_bound(name, "step", step) if whole else checked_bound(name, "step", step)
    if checked <= 0:
        raise SpaceError(f"step of {show(name)} must be above 0, got {step!r}")
    if log and not (whole and checked == 1):
        raise SpaceError(
            f"{show(name)} has a step of {step!r}, which a log scale cannot have; drop one of them"
        )
    return checked


def check_bounds(name: object, low: float, high: float, log: bool) -> None:
    """Raise SpaceError if the bounds are reversed, or not positive on a logarithmic scale."""
    if low > high:
        raise SpaceError(
            f"low of {show(name)} must not be above high, got low={low!r}, high={high!r}; swap them"
        )
    if log and low <= 0:
        raise SpaceError(
            f"low of {show(name)} must be above 0 on a log scale, got {low!r}; "
            "raise it or drop log=True"
        )


def checked_choices(name: object, choices: object) -> tuple[Value, ...]:
    """The choices; raises SpaceError unless they are plain, different values, at least one."""
    if isinstance(choices, str | bytes | Mapping | set | frozenset) or not isinstance(
        choices, Iterable
    ):
        raise SpaceError(f"choices of {show(name)} must be a list, got {show(choices)}")
    found = tuple(map(plain, choices))
    if not found:
        raise SpaceError(f"choices of {show(name)} must not be empty; give at least one value")
    for choice in found:
        if not is_value(choice):
            raise SpaceError(
                f"each choice of {show(name)} must be a bool, an int, a finite float, a string, "
                f"None, or a list of these; got {show(choice)} ({type(choice).__name__})"
            )
    seen: dict[Hashable, Value] = {}
    for choice in found:
        key = identity(choice)
        if key in seen:
            raise SpaceError(
                f"choices of {show(name)} must differ, got {show(seen[key])} and {show(choice)}, "
                "which are equal; drop one"
            )
        seen[key] = choice
    return found


def checked_when(name: str, when: object) -> dict[str, tuple[Value, ...]]:
    """Conditions as a tuple of values per parent; raises SpaceError if they are malformed."""
    if when is None:
        return {}
    if not isinstance(when, Mapping):
        raise SpaceError(
            f"when of {name!r} must map a parent's name to its value or values, got {show(when)}"
        )
    conditions: dict[str, tuple[Value, ...]] = {}
    for parent, values in when.items():
        checked_name(parent)
        listed = list(values) if isinstance(values, list | tuple) else [values]
        allowed = [plain(value) for value in listed]
        if not allowed or not all(map(is_value, allowed)):
            raise SpaceError(
                f"when of {name!r} must give {parent!r} a value or a list of values, "
                f"got {show(values)}"
            )
        if parent == name:
            raise SpaceError(
                f"when of {name!r} must name another parameter, it names {name!r} itself"
            )
        conditions[parent] = tuple({identity(value): value for value in allowed}.values())
    return conditions


def checked_affects(name: str, affects: object) -> frozenset[str]:
    """The effects as a subset of `ALL`; raises SpaceError if they are unknown or missing."""
    items: list[Any] = (
        list(affects)
        if isinstance(affects, Iterable) and not isinstance(affects, str)
        else [affects]
    )
    unknown = [item for item in items if not isinstance(item, str) or item not in ALL]
    if unknown or not items:
        raise SpaceError(
            f"affects of {name!r} must name at least one of quality, speed and memory, "
            f"got {show(unknown[0] if unknown else affects)}"
        )
    return frozenset(items)
