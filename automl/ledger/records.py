"""The rows of a sweep's log: numbers without a gap, and a CRC32 of each.

A metric that is not finite is stored as the text "nan", "inf" or "-inf". Texts have limits, whoever
writes them: one that is too long is cut.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from enum import StrEnum
from functools import lru_cache, partial
from types import UnionType
from typing import Any, Final, NamedTuple, get_args, get_origin, get_type_hints

import sqlalchemy as sa

from automl.core import SweepEvent, SweepState
from automl.core.arguments import compact_json
from automl.core.events import Command, Ended
from automl.errors import AutomlError
from search_spaces.validation import plain_params
from workers.failures import MAX_MESSAGE, MAX_NAME, MAX_TRACEBACK, bounded
from workers.protocol import Metrics, Params, Report

from .database import RECORDS, SNAPSHOTS, SWEEPS, DamageError, Sweep

REPORT: Final = "Report"
_MAX_BYTES: Final = 1 << 24  # of a cached state
_CHUNK: Final = 1000  # records that are decoded at once
_KINDS: Final[Mapping[str, type]] = {kind.__name__: kind for kind in get_args(SweepEvent)}
MAX_CHARACTERS: Final[Mapping[str, int]] = {  # by field of an event or of an outcome
    "message": MAX_MESSAGE,
    "reason": MAX_MESSAGE,
    "worker": 300,
    "agent": MAX_NAME,
    "by": MAX_NAME,
    "source": MAX_NAME,
    "exception": MAX_NAME,
    "node_kind": MAX_NAME,
    "kind": MAX_NAME,
    "failure": MAX_NAME,
}
_PRINTED: Final = ("message", "reason", "source")


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
    """A row of `RECORDS`; `sum` is of all its other values."""

    sweep: int
    number: int
    trial: int | None
    kind: str
    recorded: float
    payload: str
    sum: int


def checksum(*values: Any) -> int:
    """The CRC32 of some values as `ascii` writes them, which is alike in every Python version."""
    return zlib.crc32(ascii(values).encode())


def rows_of(sweep: int, last: int, events: Iterable[SweepEvent], recorded: float) -> list[Row]:
    """The rows that record events after the record of the number `last`."""
    found = []
    for number, event in enumerate(events, last + 1):
        values = (sweep, number, event.trial, *encoded(event, recorded))
        found.append(Row(*values, checksum(*values)))
    return found


def append(connection: sa.Connection, rows: Sequence[Row], **changed: Any) -> None:
    """Add rows to the log of a sweep that is locked; `changed` are other values of its row."""
    if rows:
        connection.execute(sa.insert(RECORDS), [row._asdict() for row in rows])
        row = {"last": rows[-1].number, **changed}
        connection.execute(sa.update(SWEEPS).where(SWEEPS.c.id == rows[0].sweep).values(row))


def rows_after(connection: sa.Connection, sweep: Sweep, number: int) -> Iterator[Sequence[Row]]:
    """The rows of a log after a number, verified, in chunks.

    Raises:
        DamageError: a row was changed, or is missing.
    """
    known = RECORDS.c.sweep == sweep.id, RECORDS.c.number > number
    found = connection.execute(sa.select(RECORDS).where(*known).order_by(RECORDS.c.number))
    for chunk in found.partitions(_CHUNK):
        rows = list(map(Row._make, chunk))
        for row in rows:
            number += 1
            if row.number != number:
                raise _missing(number, sweep)
            _check(row, sweep)
        yield rows
    if number != sweep.last:
        raise _missing(number + 1, sweep)


def records_after(
    connection: sa.Connection, sweep: Sweep, number: int
) -> Iterator[list[LogRecord]]:
    """The records of a log after a number, in chunks."""
    yield from map(decoded, rows_after(connection, sweep, number))


def records_where(connection: sa.Connection, sweep: Sweep, *where: Any) -> list[Any]:
    """The records of a log that fulfil conditions, in order.

    Each is verified, but not that none is missing.
    """
    query = sa.select(RECORDS).where(RECORDS.c.sweep == sweep.id, *where)
    rows = list(map(Row._make, connection.execute(query.order_by(RECORDS.c.number))))
    for row in rows:
        _check(row, sweep)
    return decoded(rows)


def _check(row: Row, sweep: Sweep) -> None:
    if checksum(*row[:-1]) != row.sum:
        raise DamageError(f"record {row.number} of sweep {sweep.name!r} has another checksum")


def _missing(number: int, sweep: Sweep) -> DamageError:
    return DamageError(f"record {number} of sweep {sweep.name!r} is missing or out of order")


def cache(connection: sa.Connection, sweep: int, state: SweepState) -> None:
    """Replace the cached state of a sweep, unless it is too large."""
    data = zlib.compress(compact_json(state.to_dict()).encode(), 1)
    if len(data) <= _MAX_BYTES:
        connection.execute(sa.delete(SNAPSHOTS).where(SNAPSHOTS.c.sweep == sweep))
        total = checksum(sweep, state.number, zlib.crc32(data))
        row = {"sweep": sweep, "number": state.number, "state": data, "sum": total}
        connection.execute(sa.insert(SNAPSHOTS), row)


def cached(connection: sa.Connection, sweep: int) -> SweepState | None:
    """The cached state of a sweep; one that is damaged is ignored."""
    row = connection.execute(sa.select(SNAPSHOTS).where(SNAPSHOTS.c.sweep == sweep)).first()
    if row is None or row.sum != checksum(sweep, row.number, zlib.crc32(row.state)):
        return None
    try:
        return SweepState.from_dict(json.loads(zlib.decompress(row.state)))
    except (zlib.error, ValueError, LookupError, TypeError, AttributeError, AutomlError):
        return None


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


def limited(event: SweepEvent) -> SweepEvent:
    """The event with each text at most as long as it may be."""
    if isinstance(event, Report):
        return event
    found = _cut(event)
    if isinstance(found, Ended):
        outcome = _cut(found.outcome)
        text = str(outcome.details.get("traceback", ""))
        if len(text) > MAX_TRACEBACK:
            short = {"traceback": bounded(text, MAX_TRACEBACK)}
            outcome = replace(outcome, details={**outcome.details, **short})
        found = found if outcome is found.outcome else replace(found, outcome=outcome)
    result: SweepEvent = found
    return result


def storable(text: str) -> str:
    """The text with NUL and halves of surrogate pairs escaped, because databases refuse them."""
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode()
    return text.replace("\0", "\\x00")


def _cut(value: Any) -> Any:
    """An event or an outcome whose texts are within their limits."""
    changed = {}
    for name, text in vars(value).items():
        if text and isinstance(text, str) and (most := MAX_CHARACTERS.get(name)):
            short = bounded(storable(text) if name in _PRINTED else text, most)
            if short != text:
                changed[name] = short
    return replace(value, **changed) if changed else value
