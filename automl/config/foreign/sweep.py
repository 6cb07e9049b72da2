"""What a sweep of another tool says, in the terms of this project."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from automl.errors import SpaceError, UsageError
from search_spaces.plain import read_space
from search_spaces.validation import show

_DEVIATIONS: Final = 3  # a normal distribution becomes the range of so many on either side


@dataclass
class ForeignSweep:
    """A sweep of another tool, as far as it can be carried over.

    Args:
        tool: its name.
        space: by parameter an entry of `space:`, as plain data.
        goals: such as "minimize loss".
        settings: other keys of a configuration.
        command: what to type after `--`; "" if the file names no program.
        notes: what was not carried over, or not exactly.
    """

    tool: str
    space: dict[str, Any] = field(default_factory=dict)
    goals: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    command: str = ""
    notes: list[str] = field(default_factory=list)

    def add(self, name: str, entry: Any) -> None:
        """Add a parameter; a note instead, if its name or its range is not possible here."""
        try:
            if isinstance(entry, Mapping):  # its condition needs another parameter
                read_space({name: {key: entry[key] for key in entry if key != "when"}})
            else:
                read_space({name: entry})
        except SpaceError as error:
            self.notes.append(f"{name} is left out: {error}")
        else:
            self.space[name] = entry

    def unread(self, given: Mapping[str, Any], known: Sequence[str]) -> None:
        """Note the keys of a file that mean nothing here."""
        for name in sorted(given.keys() - set(known), key=str):
            self.notes.append(f"{name} is not carried over: {show(given[name])}")


def number(value: Any, what: str) -> int | float:
    """A number, which may be written as a text.

    Raises:
        UsageError: it is none; the message says of what.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    try:
        return int(value) if str(value).strip().lstrip("+-").isdigit() else float(value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{what} must be a number, got {show(value)}") from error


def range_of(
    low: Any, high: Any, what: str, *, log: bool = False, step: Any = None, whole: bool = False
) -> dict[str, Any] | list[Any]:
    """An entry for a range; a choice of one value if it has only one.

    Args:
        low, high: both are possible.
        what: the place in the file, for messages.
        log: the scale is logarithmic.
        step: the values are its multiples; a logarithmic scale of real numbers has none here.
        whole: the values are whole numbers.
    """
    low, high = (
        number(low, f"the lower bound of {what}"),
        number(high, f"the upper bound of {what}"),
    )
    if step is not None:
        step = number(step, f"the step of {what}")
        if step > 0 and not log:
            low, high = (float(f"{round(end / step) * step:.12g}") for end in (low, high))
        whole = whole or (float(step).is_integer() and float(low).is_integer())
    if whole:
        low, high, step = math.ceil(low), math.floor(high), None if step is None else int(step)
    else:
        low, high = float(low), float(high)
    if low == high:
        return [low]
    entry: dict[str, Any] = {"low": low, "high": high}
    if whole:
        entry["type"] = "int"
    if log:
        entry["log"] = True
    elif step is not None and not (whole and step == 1):
        entry["step"] = step
    return entry


def bell(mean: Any, deviation: Any, what: str, *, log: bool = False, step: Any = None) -> Any:
    """An entry for a normal distribution, or for a log-normal one: it has no bounds of its own."""
    middle = number(mean, f"the mean of {what}")
    wide = _DEVIATIONS * number(deviation, f"the deviation of {what}")
    low, high = middle - wide, middle + wide
    if log:
        try:
            low, high = (float(f"{math.exp(end):.6g}") for end in (low, high))
        except OverflowError as error:
            raise UsageError(f"the upper bound of {what} is too large: exp({high})") from error
    return range_of(low, high, what, log=log, step=step)


def bell_note(name: str) -> str:
    """What to say about an entry that `bell` has made."""
    return (
        f"{name} was normally distributed: its range is now {_DEVIATIONS} standard deviations on "
        "either side of the mean; adapt it"
    )
