"""The rows of a sweep's log: numbers without a gap, and a CRC32 of each (`schema.checksum`).

A metric that is not finite is stored as the text "nan", "inf" or "-inf".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from enum import StrEnum
from functools import lru_cache, partial
from types import UnionType
from typing import Any, Final, NamedTuple, get_args, get_origin, get_type_hints

from automl.core import SweepEvent, SweepState
from automl.core.arguments import compact_json
from automl.core.events import Command, Ended
from search_spaces.validation import plain_params
from workers.protocol import Metrics, Params, Report

from .schema import checksum
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
    """A row of `records`; `sum` is of all its other values."""

    sweep: int
    number: int
    trial: int | None
    kind: str
    recorded: float
    payload: str
    sum: int


def rows_of(sweep: int, last: int, events: Iterable[SweepEvent], recorded: float) -> list[Row]:
    """The rows that record events after the record of the number `last`."""
    found = []
    for number, event in enumerate(events, last + 1):
        values = (sweep, number, event.trial, *encoded(event, recorded))
        found.append(Row(*values, checksum(*values)))
    return found


def verified(rows: Iterable[Row], sweep: str) -> Iterator[Row]:
    """The rows of a sweep, each verified as it comes.

    Raises:
        DamageError: a row was changed.
    """
    for row in rows:
        if checksum(*row[:-1]) != row.sum:
            raise DamageError(f"record {row.number} of sweep {sweep!r} has another checksum")
        yield row


def unbroken(rows: Iterable[Row], sweep: str, after: int, last: int) -> Iterator[Row]:
    """The rows of a log from the number `after` (excluded) to `last`, each verified as it comes.

    Raises:
        DamageError: a row is missing or was changed.
    """
    number = after
    for row in rows:
        if row.number != number + 1:
            break
        yield from verified([row], sweep)
        number += 1
    if number != last:
        raise DamageError(f"record {number + 1} of sweep {sweep!r} is missing or out of order")


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
