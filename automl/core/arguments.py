"""Plain values: checks of arguments, durations, names of sweeps, JSON."""

import json
import math
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, Final, TypeVar, cast

from automl.errors import TrialFailure, UsageError
from search_spaces.values import show
from workers.functions.numbers import numbers_of

MAX: Final = 2**63 - 1
T = TypeVar("T")


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


def whole(name: str, value: Any, *, least: int | None = None, most: int = MAX) -> int:
    """A whole number within these bounds; NumPy's become Python's, 3.0 is 3.

    Raises:
        WrongValue: it is none, such as all of the functions here raise.
    """
    exact = isinstance(value, Integral) or (isinstance(value, float) and value.is_integer())
    number = int(value) if exact and not isinstance(value, bool) else None
    if number is None or number < (-MAX if least is None else least):
        bound = "" if least is None else f" of at least {least}"
        raise WrongValue(name, f"a whole number{bound}", value)
    if number > most:
        raise WrongValue(name, f"at most {most}", value)
    return number


def numbered(trials: Sequence[T], number: int) -> T:
    """The trial of this number; UsageError if there is none."""
    if not 0 <= number < len(trials):
        raise UsageError(f"there is no trial {number}: there are {len(trials)}")
    return trials[number]


def finite(name: str, value: Any) -> float:
    """A finite number, as a float."""
    real = isinstance(value, Real) and not isinstance(value, bool)
    if not real or not abs(value) <= sys.float_info.max:
        raise WrongValue(name, "a finite number", value)
    return float(value)


def text(name: str, value: Any) -> str:
    """A text."""
    return cast(str, of_type(name, value, str, "a text"))


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


def listed(name: str, value: Any, kinds: type | tuple[type, ...], words: str) -> list[Any]:
    """One item of these types or several, as a list."""
    items = [value] if isinstance(value, kinds) else value
    if not isinstance(items, Iterable) or isinstance(items, str | bytes):
        raise WrongValue(name, f"{words} or a list of them", value)
    items = list(items)
    for item in items:
        of_type(f"an item of {name}", item, kinds, words)
    return items


def numbers(metrics: Any, goals: Sequence[str] = ()) -> dict[str, float]:
    """Values of metrics by name, as `workers.functions.numbers` bounds them.

    Args:
        goals: if there is a single one, a number is its value.
    """
    if not isinstance(metrics, Mapping):
        if len(goals) != 1 or isinstance(metrics, str | bytes | bool):
            example = ", ".join(f"{name!r}: 0.5" for name in goals)
            raise UsageError(
                f"metrics map names to numbers, such as {{{example}}}; got {shown(metrics)}"
            )
        metrics = {goals[0]: metrics}
    try:
        return numbers_of({text("a metric's name", name): one for name, one in metrics.items()})
    except TrialFailure as error:
        raise UsageError(error.message) from error


_DURATION = re.compile(
    r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?(?:e[+-]?\d+)?)s)?"
    r"(?:(\d+(?:\.\d+)?)ms)?"
)
_UNIT_SECONDS = (86400, 3600, 60, 1, 1e-3)


def parse_duration(text: str | float) -> float:
    """Seconds of `90`, `90s`, `1.5h`, `1h30m`, `2d` or `500ms`.

    Raises:
        UsageError: the text has another form, or the duration is not positive and finite.
    """
    words = text.strip() if isinstance(text, str) else repr(finite("a duration", text))
    match = _DURATION.fullmatch(words if words[-1:].isalpha() else f"{words}s")
    parts = match.groups(0) if match else ()
    seconds = sum(float(part) * unit for part, unit in zip(parts, _UNIT_SECONDS, strict=False))
    if not 0 < seconds < math.inf:
        raise UsageError(f"a duration is like 90s, 10m or 1h30m, got {show(text)}")
    return seconds


def duration(seconds: float) -> str:
    """`20ms`, `8s`, `1m 05s`, `2h 03m`, `3d 04h`."""
    if 0 < seconds < 0.9995:
        return f"{max(seconds * 1000, 1):.0f}ms"
    whole = int(max(seconds, 0) + 0.5)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
    days = whole // 86400
    return f"{days}d {whole % 86400 // 3600:02d}h" if days < 1e5 else f"{seconds / 86400:.3g} days"


MAX_NAME: Final = 64
NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{MAX_NAME - 1}}}")


def check_name(name: str) -> str:
    """Return the name if a sweep may have it.

    Raises:
        UsageError: the name has another form.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise UsageError(
            "a name has 1 to 64 of A-Z a-z 0-9 _ . - and begins with a letter or digit, "
            f"got {show(name)}"
        )
    return name


def companion(sweep: str, kind: str) -> str:
    """Name of a sweep that belongs to another one, such as `nmt.confirm`."""
    return f"{sweep[: MAX_NAME - 1 - len(kind)]}.{kind}"


def json_data(value: Any) -> Any:
    """Plain JSON data; numbers that are not finite become the texts "nan", "inf" and "-inf"."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, Mapping):
        return {str(key): json_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [json_data(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def compact_json(value: Any) -> str:
    """JSON text without spaces; numbers that are not finite are texts, as in `json_data`."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (ValueError, TypeError):
        return json.dumps(json_data(value), allow_nan=False, separators=(",", ":"))
