"""The rows of a sweep's log: events as text, checksums, and the chain that they form.

The sum of a row is the BLAKE2b hash (RFC 7693) of 8 bytes of its other values, as a signed 64-bit
number. Values are written by `ascii`, whose text is the same in every Python version. One of the
values is the sum of the row before, so a row that is missing, changed or moved is noticed.

A metric that is not finite is stored as the text "nan", "inf" or "-inf".
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from automl.core import SweepEvent, TrialState
from automl.core.events import (
    Answered,
    Begun,
    Closed,
    Command,
    Created,
    Ended,
    Leased,
    Moved,
    Noted,
    Proposed,
    SpecChanged,
)
from automl.core.text import json_data
from search_spaces.validation import plain_params
from workers.protocol import Ending, Outcome, Report, Started, StopRequest

from .protocol import LogRecord
from .store_errors import DamageError

REPORT: Final = "Report"
COMMAND: Final = "Command"
_KINDS: Final[Mapping[str, type]] = {
    kind.__name__: kind
    for kind in (
        Created, SpecChanged, Closed, Proposed, Begun, Started, Ended, Moved, Noted, Command,
        Answered, Leased,
    )
}  # fmt: skip
_NUMBER: Final = (int, float)
_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {  # by annotation; a union has a None
    "int": int,
    "float": _NUMBER,
    "str": str,
    "bool": bool,
    "StopRequest": str,
    "TrialState": str,
    "Ending": str,
    "Outcome": dict,
    "Metrics": dict,
    "Params": dict,
    "Mapping[str, Any]": dict,
}


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


def verify(rows: Iterable[Row], place: Place, name: str) -> Place:
    """The place after some rows of a log that follow another place.

    Raises:
        DamageError: a row is missing or was changed.
    """
    for row in rows:
        if row.number != place.number + 1:
            raise DamageError(f"record {place.number + 1} of sweep {name!r} is missing")
        if not is_sound(row):
            raise DamageError(f"record {row.number} of sweep {name!r} has another checksum")
        if row.previous != place.sum:
            raise DamageError(f"record {row.number} of sweep {name!r} is of another log")
        place = Place(row.number, row.sum)
    return place


def is_sound(row: Row) -> bool:
    """Whether a row has its sum."""
    return checksum("record", *row[:-1]) == row.sum


def encoded(event: SweepEvent, recorded: float) -> tuple[str, float, str]:
    """Kind, time and payload of an event; the number of its trial is not in the payload."""
    if isinstance(event, Report):
        content: Any = [event.attempt, event.sequence, event.step, event.seconds, event.metrics]
        return REPORT, recorded, dumps(content)
    content = {**vars(event)}
    if isinstance(event, Ended):
        content["outcome"] = {**vars(event.outcome)}
        del content["outcome"]["trial"]
    else:
        del content["trial"]
    if isinstance(event, Command):
        del content["sent"]  # `recorded`
    return type(event).__name__, recorded, dumps(content)


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


def dumps(value: Any) -> str:
    """JSON text that every database and every parser accepts."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (ValueError, TypeError):
        return json.dumps(json_data(value), allow_nan=False, separators=(",", ":"))


def _report(row: Row, content: list[Any]) -> Report:
    attempt, sequence, step, seconds, metrics = content
    if not isinstance(attempt, int) or not isinstance(sequence, int) or not isinstance(step, int):
        raise DamageError(f"record {row.number} is no report")
    found = {key: float(value) for key, value in metrics.items()}
    return Report(_trial(row), attempt, sequence, step, found, float(seconds))


def _event(row: Row, content: dict[str, Any]) -> SweepEvent:
    kind = _KINDS.get(row.kind)
    if kind is None or not isinstance(row.recorded, _NUMBER):
        raise DamageError(f"record {row.number} is no event: {row.kind!r:.40}")
    _check_types(row, kind, content)
    if kind is Ended:
        content["outcome"] = _outcome(row, content["outcome"])
    else:
        content["trial"] = row.trial if kind in (Noted, Command, Answered) else _trial_of(row, kind)
    if kind is Proposed and "[" in row.payload:
        content["params"] = plain_params(content["params"])
    elif kind is Command:
        content["sent"] = row.recorded
    if "state" in content and kind is not Closed:
        content["state"] = TrialState(content["state"])
    if content.get("asked") is not None and kind is Leased:
        content["asked"] = StopRequest(content["asked"])
    event: SweepEvent = kind(**content)
    return event


def _outcome(row: Row, content: dict[str, Any]) -> Outcome:
    _check_types(row, Outcome, content)
    content["metrics"] = {key: float(value) for key, value in content["metrics"].items()}
    content["ending"] = Ending(content["ending"])
    content["trial"] = _trial(row)
    return Outcome(**content)


def _trial_of(row: Row, kind: type) -> int | None:
    return None if kind in (Created, SpecChanged, Closed) else _trial(row)


def _trial(row: Row) -> int:
    if not isinstance(row.trial, int) or row.trial < 0:
        raise DamageError(f"record {row.number} is of no trial")
    return row.trial


def _check_types(row: Row, kind: type, content: Mapping[str, Any]) -> None:
    """Check that the values of a payload have the types of the event's fields."""
    for name, types in _fields(kind):
        if name in content and not isinstance(content[name], types):
            raise DamageError(f"{name} of record {row.number} is {content[name]!r:.40}")


@lru_cache
def _fields(kind: type) -> tuple[tuple[str, tuple[type, ...]], ...]:
    found = []
    for field in dataclasses.fields(kind):
        known = [_TYPES[part] for part in str(_name(field.type)).split(" | ") if part != "None"]
        types = [one for part in known for one in (part if isinstance(part, tuple) else (part,))]
        if "None" in str(_name(field.type)):
            types.append(type(None))
        found.append((field.name, tuple(types)))
    return tuple(found)


def _name(annotation: Any) -> str:
    if isinstance(annotation, str):
        return annotation
    if annotation in (int, float, str, bool, Ending):
        return str(annotation.__name__)
    text = str(annotation)
    return "Mapping[str, Any]" if "Mapping" in text else text
