"""The rows of a sweep's log: events as text, checksums, and the chain that they form.

The sum of a row is the BLAKE2b hash (RFC 7693) of 8 bytes of its other values, as a signed 64-bit
number. Values are written by `ascii`, whose text is the same in every Python version. One of the
values is the sum of the row before, so a row that is missing, changed or moved is noticed.

A metric that is not finite is stored as the text "nan", "inf" or "-inf".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from enum import StrEnum
from functools import lru_cache, partial
from hashlib import blake2b
from types import UnionType
from typing import Any, Final, NamedTuple, get_args, get_origin, get_type_hints

from automl.core import SweepEvent, SweepState
from automl.core.events import Command, Ended
from automl.core.plain_data import compact_json
from search_spaces.validation import plain_params
from workers.protocol import Metrics, Params, Report

from .store_errors import DamageError

REPORT: Final = "Report"
COMMAND: Final = "Command"
_KINDS: Final[Mapping[str, type]] = {kind.__name__: kind for kind in get_args(SweepEvent)}


class LogRecord(NamedTuple):
    """An event of a sweep's log.

    Args:
        number: from 1, without gaps.
        recorded: seconds since 1970 on the clock of the store.
    """

    number: int
    recorded: float
    event: SweepEvent


class Row(NamedTuple):
    """A row of `records`."""

    sweep: int
    number: int
    trial: int | None
    kind: str
    recorded: float
    payload: str
    previous: int
    sum: int

    @property
    def place(self) -> Place:
        """The place after it."""
        return Place(self.number, self.sum)


class Place(NamedTuple):
    """A place in a log: after the record of this number and sum."""

    number: int
    sum: int


BEGINNING: Final = Place(0, 0)


def checksum(label: str, *values: Any) -> int:
    """The sum of some values; `label`, of at most 16 bytes, tells different tables apart."""
    found = _empty(label).copy()  # in half the time of a new one
    found.update(ascii(values).encode())
    return int.from_bytes(found.digest(), "big", signed=True)


@lru_cache
def _empty(label: str) -> blake2b:
    return blake2b(digest_size=8, person=label.encode())


def seal(label: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of another table with its sum, over its values in the order of their names."""
    return {**row, "sum": _sum_of(label, row)}


def check_seal(label: str, row: Mapping[str, Any], what: str) -> None:
    """Raise DamageError if a row of another table has not its sum."""
    if row["sum"] != _sum_of(label, row):
        raise DamageError(f"{what} has another checksum")


def _sum_of(label: str, row: Mapping[str, Any]) -> int:
    return checksum(label, *(row[name] for name in sorted(row) if name != "sum"))


def chained(sweep: int, place: Place, events: Iterable[SweepEvent], recorded: float) -> list[Row]:
    """The rows that record events after a place of a log."""
    found = []
    for event in events:
        values = (sweep, place.number + 1, event.trial, *encoded(event, recorded), place.sum)
        place = Place(place.number + 1, checksum("record", *values))
        found.append(Row(*values, place.sum))
    return found


def verified(rows: Iterable[Row], place: Place, name: str) -> Iterator[Row]:
    """The rows of a log that follow a place, each verified as it comes.

    Raises:
        DamageError: a row is missing or was changed.
    """
    number, total = place
    for row in rows:
        if row.number != number + 1:
            raise DamageError(f"record {number + 1} of sweep {name!r} is missing")
        if not is_sound(row):
            raise DamageError(f"record {row.number} of sweep {name!r} has another checksum")
        if row.previous != total:
            raise DamageError(f"record {row.number} of sweep {name!r} is of another log")
        number, total = row.number, row.sum
        yield row


def is_sound(row: Row) -> bool:
    """Whether a row has its sum."""
    return checksum("record", *row[:-1]) == row.sum


def encoded(event: SweepEvent, recorded: float) -> tuple[str, float, str]:
    """Kind, time and payload of an event; the number of its trial is not in the payload."""
    if isinstance(event, Report):
        content: Any = [event.attempt, event.sequence, event.step, event.seconds, event.metrics]
        return REPORT, recorded, compact_json(content)
    content = {**vars(event)}
    if isinstance(event, Ended):
        content["outcome"] = {**vars(event.outcome)}
        del content["outcome"]["trial"]
    else:
        del content["trial"]
    if isinstance(event, Command):
        del content["sent"]  # `recorded`
    return type(event).__name__, recorded, compact_json(content)


def decoded(rows: Sequence[Row]) -> list[LogRecord]:
    """The records of some rows.

    Raises:
        DamageError and others: a row holds no event of ours.
    """
    # All at once, in a third of the time.
    contents = json.loads(f"[{','.join([row.payload for row in rows])}]")
    if len(contents) != len(rows):
        raise DamageError("a payload is not one")
    return [
        LogRecord(
            row.number,
            row.recorded,
            _report(row, content) if row.kind == REPORT else _event(row, content),
        )
        for row, content in zip(rows, contents, strict=True)
    ]


def apply(state: SweepState, records: Iterable[LogRecord]) -> set[int]:
    """Apply records to a state; the numbers of the trials that changed."""
    applied = (state.apply(record.event, record.number) for record in records)
    return {trial.number for trial in applied if trial is not None}


def _report(row: Row, content: list[Any]) -> Report:
    attempt, sequence, step, seconds, metrics = content
    if not isinstance(attempt, int) or not isinstance(sequence, int) or not isinstance(step, int):
        raise DamageError(f"record {row.number} is no report")
    return Report(_trial(row), attempt, sequence, step, _numbers(metrics), float(seconds))


def _event(row: Row, content: dict[str, Any]) -> SweepEvent:
    kind = _KINDS.get(row.kind)
    if kind is None or not isinstance(row.recorded, int | float):
        raise DamageError(f"record {row.number} is no event: {row.kind!r:.40}")
    if row.trial is not None:
        (content["outcome"] if kind is Ended else content)["trial"] = _trial(row)
    if kind is Command:
        content["sent"] = row.recorded
    event: SweepEvent = _made(kind, content)
    return event


def _trial(row: Row) -> int:
    if not isinstance(row.trial, int) or row.trial < 0:
        raise DamageError(f"record {row.number} is of no trial")
    return row.trial


def _made(kind: type, content: dict[str, Any]) -> Any:
    """An event or an outcome of JSON data, whose values must have the types of its fields."""
    for name, (types, convert) in _fields(kind).items():
        if name in content:
            value = content[name]
            if not isinstance(value, types):
                raise DamageError(f"{name} of a record is {value!r:.40}")
            if convert and value is not None:
                content[name] = convert(value)
    return kind(**content)


@lru_cache
def _fields(kind: type) -> dict[str, tuple[tuple[type, ...], Callable[[Any], Any] | None]]:
    """The types of JSON data that each field of an event may have, and what converts them."""
    found = {}
    for name, hint in get_type_hints(kind).items():
        hints = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        types = tuple(one for each in hints for one in _json_types(get_origin(each) or each))
        found[name] = (types, _converter(hints[0]))
    return found


def _json_types(kind: type) -> tuple[type, ...]:
    if issubclass(kind, Mapping) or is_dataclass(kind):
        return (dict,)
    if issubclass(kind, StrEnum):
        return (str,)
    return (int, float) if kind is float else (kind,)


def _converter(hint: Any) -> Callable[[Any], Any] | None:
    if hint == Metrics:
        return _numbers
    if hint == Params:
        return plain_params
    if isinstance(hint, type) and is_dataclass(hint):
        return partial(_made, hint)
    return hint if isinstance(hint, type) and issubclass(hint, StrEnum) else None


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items()}
