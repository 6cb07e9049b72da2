"""The records of a sweep's log: events as JSON, under numbers without a gap, and a CRC32 of each.

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
from workers.protocol import Cause, Ending, Outcome, StopRequest

from .database import RECORDS, SWEEPS, DamageError, Sweep

_CHUNK: Final = 1000  # records that are decoded at once


class LogRecord(NamedTuple):
    """An event of a sweep's log.

    Args:
        number: from 1, without gaps.
        recorded: seconds since 1970 on the clock of the store.
        sum: see `checksum`.
    """

    number: int
    recorded: float
    event: SweepEvent
    sum: int


def checksum(values: Iterable[Any]) -> int:
    """The CRC32 of the other values of a row as `ascii` writes them, which no Python changes."""
    return zlib.crc32(ascii(tuple(values)).encode())


def rows_of(sweep: Sweep, events: Iterable[SweepEvent]) -> list[dict[str, Any]]:
    """The rows of `RECORDS` for events after the newest record of a sweep."""
    found = []
    for number, event in enumerate(events, sweep.last + 1):
        kind = type(event).__name__
        values = (sweep.id, number, event.trial, kind, sweep.now, _payload(event))
        found.append(dict(zip(RECORDS.c.keys(), (*values, checksum(values)), strict=True)))
    return found


def append(connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows to the log of a sweep, whose row in `SWEEPS` is locked."""
    if rows:
        connection.execute(sa.insert(RECORDS), rows)
        mine = sa.update(SWEEPS).where(SWEEPS.c.id == rows[0]["sweep"])
        connection.execute(mine.values(last=rows[-1]["number"]))


def records_after(connection: sa.Connection, sweep: Sweep, number: int = 0) -> Iterator[LogRecord]:
    """The records of a log after a number, verified.

    Raises:
        DamageError: a row was changed, or is missing.
    """
    known = RECORDS.c.sweep == sweep.id, RECORDS.c.number > number
    found = connection.execute(sa.select(RECORDS).where(*known).order_by(RECORDS.c.number))
    for rows in found.partitions(_CHUNK):
        for row in rows:
            number += 1
            if row.number != number:
                raise _missing(number, sweep)
            if checksum(row[:-1]) != row.sum:
                raise DamageError(f"record {number} of sweep {sweep.name!r} has another checksum")
        # All at once, in a third of the time.
        contents = json.loads(f"[{','.join([row.payload for row in rows])}]")
        for row, content in zip(rows, contents, strict=True):
            yield LogRecord(row.number, row.recorded, _event(row, content), row.sum)
    if number != sweep.last:
        raise _missing(number + 1, sweep)


def apply(state: SweepState, records: Iterable[LogRecord]) -> set[int]:
    """Apply records to a state; the numbers of the trials that changed."""
    applied = (state.apply(record.event, record.number) for record in records)
    return {trial.number for trial in applied if trial is not None}


def _missing(number: int, sweep: Sweep) -> DamageError:
    return DamageError(f"record {number} of sweep {sweep.name!r} is missing or out of order")


def _payload(event: SweepEvent) -> str:
    content = vars(event)
    if isinstance(event, Ended):
        content = {**content, "outcome": vars(event.outcome)}
    return compact_json(content)


def _event(row: Any, content: dict[str, Any]) -> SweepEvent:
    """The inverse of `_payload`; raises ValueError, KeyError or TypeError if it is damaged."""
    kind = _KINDS[row.kind]
    if kind is Command:
        content["sent"] = row.recorded
    event: SweepEvent = kind(**_converted(content, _CONVERTERS.get(row.kind, {})))
    return event


def _converted(content: dict[str, Any], converters: Converters) -> dict[str, Any]:
    """The content with the values that JSON does not have, such as tuples and enumerations."""
    for name, convert in converters.items():
        if content[name] is not None:
            content[name] = convert(content[name])
    return content


def _floats(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items()}


def _outcome(content: dict[str, Any]) -> Outcome:
    return Outcome(**_converted(content, {"ending": Ending, "metrics": _floats, "cause": Cause}))


Converters = Mapping[str, Callable[[Any], Any]]
_KINDS: Final[Mapping[str, type]] = {kind.__name__: kind for kind in get_args(SweepEvent)}
_CONVERTERS: Final[Mapping[str, Converters]] = {
    "Report": {"metrics": _floats, "seconds": float},
    "Proposed": {"params": plain_params},
    "Asked": {"params": plain_params},
    "Ended": {"state": TrialState, "outcome": _outcome},
    "Moved": {"state": TrialState},
    "Leased": {"asked": StopRequest},
}
