"""Checks of the arguments of public functions: a wrong one ends in one `UsageError`."""

import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from automl.errors import TrialFailure, UsageError
from search_spaces.validation import show
from workers.functions.numbers import numbers_of
from workers.protocol import Metric

MAX: Final = 2**63 - 1
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class WrongValue(UsageError):
    """A value that an argument or a setting cannot have.

    Args:
        name: of the argument.
        rule: what it must be.
        value: what it is.
        hint: said behind that.
    """

    def __init__(self, name: str, rule: str, value: Any, hint: str = "") -> None:
        super().__init__(f"{name} must be {rule}, got {shown(value)}{hint}")
        self.rule, self.value, self.hint = rule, value, hint


def shown(value: Any) -> str:
    """A wrong value in a message: what it is, and its type."""
    return f"{show(value)} ({type(value).__name__})"


def whole(name: str, value: Any, *, least: int | None = None, most: int | None = None) -> int:
    """A whole number within these bounds that fits 64 bits; NumPy's become Python's, 3.0 is 3.

    Raises:
        WrongValue: it is none, such as all of the functions here raise.
    """
    try:
        exact = isinstance(value, float) and value.is_integer()
        number = None if isinstance(value, bool) else int(value) if exact else operator.index(value)
    except TypeError:
        number = None
    if number is not None and abs(number) > MAX:
        raise UsageError(f"{name} must fit 64 bits, got {shown(value)}")
    if number is None or (least is not None and number < least):
        bound = "" if least is None else f" of at least {least}"
        raise WrongValue(name, f"a whole number{bound}", value)
    if most is not None and number > most:
        raise WrongValue(name, f"at most {most}", value)
    return number


def finite(name: str, value: Any) -> float:
    """A finite number, as a float."""
    try:
        number = math.nan if isinstance(value, bool | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        words = "number" if isinstance(value, str | bool) else "finite number"
        raise WrongValue(name, f"a {words}", value)
    return number


def flag(name: str, value: Any) -> bool:
    """True or False."""
    return bool(of_type(name, value, bool, "True or False"))


def text(name: str, value: Any) -> str:
    """A text."""
    return cast(str, of_type(name, value, str, "a text"))


def function(name: str, value: F) -> F:
    """Something that can be called."""
    return of_type(name, value, Callable, "a function")


def mapping(name: str, value: Any) -> Mapping[str, Any]:
    """Values by the name of a parameter; None stands for no values."""
    given: Mapping[str, Any] = {} if value is None else value
    return of_type(name, given, Mapping, "a mapping of names to values")


def of_type(name: str, value: T, kind: Any, rule: str) -> T:
    """The value, if it is of a type."""
    if not isinstance(value, kind):
        raise WrongValue(name, rule, value)
    return value


def location(name: str, value: Any, of: str = "database") -> str:
    """A place as a text: a folder, or the URL of a database or of something else."""
    if not isinstance(value, str | os.PathLike) or not (found := os.fspath(value)):
        raise WrongValue(name, f"a folder or the URL of a {of}", value)
    return text(name, found)


def optional(check: Callable[..., T], name: str, value: Any, **rules: Any) -> T | None:
    """None, or what the check of a value gives."""
    return None if value is None else check(name, value, **rules)


def listed(name: str, value: Any, kinds: type | tuple[type, ...], words: str) -> list[Any]:
    """One item of these types or several, as a list."""
    items = [value] if isinstance(value, kinds) else value
    if isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise WrongValue(name, f"{words} or a list of them", value)
    items = list(items)
    for item in items:
        if not isinstance(item, kinds):
            raise WrongValue(name, f"{words} or a list of them", item, " in it")
    return items


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Values of metrics by name, as `workers.functions.numbers` bounds them."""
    try:
        return numbers_of({text("a metric's name", name): one for name, one in metrics.items()})
    except TrialFailure as error:
        raise UsageError(error.message) from error


def value_of_goal(goals: Sequence[str], value: Any) -> dict[str, float]:
    """A number as the value of the only goal."""
    if len(goals) > 1 or isinstance(value, str | bytes | bool):
        example = ", ".join(f"{name!r}: 0.5" for name in goals)
        raise UsageError(f"metrics map names to numbers, such as {{{example}}}; got {shown(value)}")
    return numbers({goals[0]: value})


def metrics(value: Any) -> tuple[Metric, ...]:
    """Declared metrics."""
    words = "an automl.Metric, such as Metric('latency', 'minimize', 'speed'),"
    return tuple(listed("metrics", value, Metric, words))
