"""Checks of the arguments of public functions: a wrong one ends in one `UsageError`."""

import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar, cast

from automl.errors import UsageError
from search_spaces.validation import show
from workers.protocol import Metric

MAX: Final = 2**63 - 1
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def shown(value: Any) -> str:
    """A wrong value in a message: what it is, and its type."""
    return f"{show(value)} ({type(value).__name__})"


def whole(name: str, value: Any, *, least: int | None = None) -> int:
    """A whole number of at least `least` that fits 64 bits; NumPy's become Python's.

    Raises:
        UsageError: it is none, such as all of the functions here raise.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is not None and abs(number) > MAX:
        raise UsageError(f"{name} must fit 64 bits, got {shown(value)}")
    if number is None or (least is not None and number < least):
        bound = "" if least is None else f" of at least {least}"
        raise UsageError(f"{name} must be a whole number{bound}, got {shown(value)}")
    return number


def finite(name: str, value: Any) -> float:
    """A finite number, as a float."""
    try:
        number = math.nan if isinstance(value, bool | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{name} must be a finite number, got {shown(value)}")
    return number


def flag(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise UsageError(f"{name} must be True or False, got {shown(value)}")
    return value


def text(name: str, value: Any) -> str:
    """A text."""
    if not isinstance(value, str):
        raise UsageError(f"{name} must be a text, got {shown(value)}")
    return value


def location(name: str, value: Any, of: str = "database") -> str:
    """A place as a text: a folder, or the URL of a database or of something else."""
    if not isinstance(value, str | os.PathLike) or not (found := os.fspath(value)):
        raise UsageError(f"{name} must be a folder or the URL of a {of}, got {shown(value)}")
    return text(name, found)


def optional(check: Callable[..., T], name: str, value: Any, **rules: Any) -> T | None:
    """None, or what the check of a value gives."""
    return None if value is None else check(name, value, **rules)


def function(name: str, value: F) -> F:
    """Something that can be called."""
    if not callable(value):
        raise UsageError(f"{name} must be a function, got {shown(value)}")
    return value


def mapping(name: str, value: Any) -> Mapping[str, Any]:
    """Values by the name of a parameter."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{name} must map parameters to values, got {shown(value)}")
    return value


def listed(name: str, value: Any, kinds: type | tuple[type, ...], words: str) -> list[Any]:
    """One item of these types or several, as a list."""
    items = [value] if isinstance(value, kinds) else value
    if isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise UsageError(f"{name} must be {words} or a list of them, got {shown(value)}")
    items = list(items)
    for item in items:
        if not isinstance(item, kinds):
            raise UsageError(f"{name} must be {words} or a list of them, got {shown(item)} in it")
    return items


def metrics(value: Any) -> tuple[Metric, ...]:
    """Declared metrics."""
    words = "an automl.Metric, such as Metric('latency', 'minimize', 'speed'),"
    return tuple(cast(Iterable[Metric], listed("metrics", value, Metric, words)))
