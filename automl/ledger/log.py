"""The rows of a sweep's log: events as JSON, under numbers without a gap, and a CRC32 of each.

A metric that is not finite is stored as the text "nan", "inf" or "-inf".
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, get_args

import sqlalchemy as sa

from automl.core import SweepEvent, SweepState, TrialState
from automl.core.arguments import compact_json
from automl.core.events import Command, Ended
from search_spaces.validation import plain_params
from workers.protocol import Cause, Ending, Outcome, Report, StopRequest

from .database import RECORDS, SWEEPS, DamageError, Sweep

REPORT: Final = "Report"
_CHUNK: Final = 1000  # records that are decoded at once
_KINDS: Final[Mapping[str, type]] = {kind.__name__: kind for kind in get_args(SweepEvent)}


Kinds = Mapping[str, Callable[[Any], Any]]


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


def rows_of(sweep: Sweep, events: Iterable[SweepEvent]) -> list[Row]:
    """The rows that record events after the newest record of a sweep."""
    found = []
    for number, event in enumerate(events, sweep.last + 1):
        kind = type(event).__name__
        values = (sweep.id, number, event.trial, kind, sweep.now, _payload(event))
        found.append(Row(*values, checksum(*values)))
    return found


def append(connection: sa.Connection, rows: Sequence[Row]) -> None:
    """Add rows to the log of a sweep, whose row in `SWEEPS` is locked."""
    if rows:
        connection.execute(sa.insert(RECORDS), [row._asdict() for row in rows])
        last = sa.update(SWEEPS).where(SWEEPS.c.id == rows[0].sweep).values(last=rows[-1].number)
        connection.execute(last)


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
    connection: sa.Connection, sweep: Sweep, number: int = 0
) -> Iterator[list[LogRecord]]:
    """The records of a log after a number, in chunks."""
    yield from map(decoded, rows_after(connection, sweep, number))


def records_of_trial(connection: sa.Connection, sweep: Sweep, trial: int) -> list[LogRecord]:
    """The records of a trial, in order; each is verified, but not that none is missing."""
    query = sa.select(RECORDS).where(RECORDS.c.sweep == sweep.id, RECORDS.c.trial == trial)
    rows = list(map(Row._make, connection.execute(query.order_by(RECORDS.c.number))))
    for row in rows:
        _check(row, sweep)
    return decoded(rows)


def decoded(rows: Sequence[Any]) -> list[LogRecord]:
    """The records of some rows; raises ValueError, KeyError or TypeError if one is damaged."""
    # All at once, in a third of the time.
    contents = json.loads(f"[{','.join([row.payload for row in rows])}]")
    return [
        LogRecord(row.number, row.recorded, _event(row, content))
        for row, content in zip(rows, contents, strict=True)
    ]


def apply(state: SweepState, records: Iterable[LogRecord]) -> set[int]:
    """Apply records to a state; the numbers of the trials that changed."""
    applied = (state.apply(record.event, record.number) for record in records)
    return {trial.number for trial in applied if trial is not None}


def _check(row: Row, sweep: Sweep) -> None:
    if checksum(*row[:-1]) != row.sum:
        raise DamageError(f"record {row.number} of sweep {sweep.name!r} has another checksum")


def _missing(number: int, sweep: Sweep) -> DamageError:
    return DamageError(f"record {number} of sweep {sweep.name!r} is missing or out of order")


def _payload(event: SweepEvent) -> str:
    """The JSON of an event without the number of its trial, which has a column."""
    if isinstance(event, Report):
        report = [event.attempt, event.sequence, event.step, event.seconds, event.metrics]
        return compact_json(report)
    content = {**vars(event)}
    if isinstance(event, Ended):
        content["outcome"] = {**vars(event.outcome)}
        del content["outcome"]["trial"]
    else:
        del content["trial"]
    if isinstance(event, Command):
        del content["sent"]  # the time of the record
    return compact_json(content)


def _event(row: Any, content: Any) -> SweepEvent:
    """The inverse of `_payload`."""
    if row.kind == REPORT:
        attempt, sequence, step, seconds, metrics = content
        return Report(row.trial, attempt, sequence, step, _floats(metrics), float(seconds))
    kind = _KINDS[row.kind]
    if kind is Ended:
        outcome = {**content.pop("outcome"), "trial": row.trial}
        content["outcome"] = Outcome(**_converted(outcome, _OF_OUTCOMES))
    else:
        content["trial"] = row.trial
    if kind is Command:
        content["sent"] = row.recorded
    if row.kind in _OF_EVENTS:
        _converted(content, _OF_EVENTS[row.kind])
    event: SweepEvent = kind(**content)
    return event


def _converted(
    content: dict[str, Any], kinds: Mapping[str, Callable[[Any], Any]]
) -> dict[str, Any]:
    """The content with the values that JSON does not have, such as tuples and enumerations."""
    for name, convert in kinds.items():
        if content.get(name) is not None:
            content[name] = convert(content[name])
    return content


def _floats(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items()}


_OF_OUTCOMES: Final[Kinds] = {"ending": Ending, "metrics": _floats, "cause": Cause}
_OF_EVENTS: Final[Mapping[str, Kinds]] = {
    "Proposed": {"params": plain_params},
    "Asked": {"params": plain_params},
    "Ended": {"state": TrialState},
    "Moved": {"state": TrialState},
    "Leased": {"asked": StopRequest},
}
