"""The values of parameters: their plain form, which are the same, and which are legal."""

import ast
import json
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, Final

import numpy as np

from .errors import SpaceError

Value = bool | int | float | str | tuple[Any, ...] | None
Params = Mapping[str, Value]
When = Mapping[str, Value | Sequence[Value]]

ROUNDING: Final = 1e-12  # relative: real numbers that differ by less are the same
WORDS: Final[Mapping[str, Any]] = {
    "": None,
    "none": None,
    "null": None,
    "true": True,
    "false": False,
}


def plain(value: Any) -> Any:
    """The plain Python value of a NumPy scalar or an enumeration member; -0.0 becomes 0.0.

    A list becomes a tuple, so that it can be compared and looked up; JSON gives it back as a list.
    """
    if type(value) in (str, int, bool):
        return value  # most are
    if isinstance(value, np.floating):  # float32(0.3) is 0.3, not 0.30000001192
        value = float(value if value.dtype.itemsize >= 8 else str(value))
    elif isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    elif isinstance(value, Enum):
        value = value.value
    if isinstance(value, list | tuple):
        return tuple(map(plain, value))
    return value + 0.0 if isinstance(value, float) else value


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


def meanings(text: str) -> list[Any]:
    """What a text may mean: JSON, a literal of Python, a number, a word; then the text itself."""
    found: list[Any] = []
    for read in (json.loads, ast.literal_eval, int, float, lambda text: WORDS[text.lower()]):
        with suppress(ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError):
            found.append(plain(read(text)))
    return [*found, text]


def is_value(value: object) -> bool:
    """Whether it is None, a bool, an int, a finite float, UTF-8 text, or a tuple of these."""
    if isinstance(value, tuple):
        return all(map(is_value, value))
    if isinstance(value, str):
        return value.isprintable() or not any("\ud800" <= c <= "\udfff" for c in value)
    is_finite = isinstance(value, float) and math.isfinite(value)
    return value is None or isinstance(value, bool | int) or is_finite


def show(value: object) -> str:
    """The repr of a value for a message, shortened to 100 characters."""
    try:
        text = repr(value)
    except Exception:  # of a foreign class, or of an int with thousands of digits
        return f"<{type(value).__name__} that cannot be shown>"
    return text if len(text) <= 100 else f"{text[:97]}..."


def check(right: object, said: str) -> None:
    """Raise SpaceError with what is said unless it is right."""
    if not right:
        raise SpaceError(said)


def checked_when(name: str, when: Any) -> dict[str, tuple[Value, ...]]:
    """Conditions as a tuple of values per parent; raises SpaceError if they are malformed."""
    check(
        when is None or isinstance(when, Mapping),
        f"when of {name!r} must map a parent's name to its value or values, got {show(when)}",
    )
    conditions: dict[str, tuple[Value, ...]] = {}
    for parent, values in (when or {}).items():
        allowed = [plain(v) for v in (values if isinstance(values, list | tuple) else [values])]
        check(
            allowed and all(map(is_value, allowed)),
            f"when of {name!r} must give {parent!r} a value or a list of values, "
            f"got {show(values)}",
        )
        conditions[parent] = tuple({identity(value): value for value in allowed}.values())
    return conditions
