"""Cached states of sweeps, so that a reader folds only the newest records.

A snapshot is sealed together with the record that it follows. One that does not fit is ignored.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, Final

import sqlalchemy as sa

from automl.core import SweepState
from automl.errors import AutomlError

from .records import BEGINNING, Place, checksum, dumps
from .schema import RECORDS, SNAPSHOTS

_MAX_RATIO: Final = 100  # of the text to what is stored
_MAX_BYTES: Final = 1 << 24  # that are stored


def read(connection: sa.Connection, sweep: int) -> tuple[SweepState | None, Place]:
    """The cached state of a sweep, and its place in the log; None if there is none that holds."""
    row, last = _found(connection, sweep)
    if row is None or last is None:
        return None, BEGINNING
    try:
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(row.state, _MAX_RATIO * len(row.state))
        return SweepState.from_dict(json.loads(text)), Place(row.number, last)
    except (zlib.error, ValueError, LookupError, TypeError, AttributeError, AutomlError):
        return None, BEGINNING


def is_sound(connection: sa.Connection, sweep: int) -> bool:
    """Whether the cached state of a sweep, if there is one, has its sum."""
    row, last = _found(connection, sweep)
    return row is None or last is not None


def write(connection: sa.Connection, sweep: int, state: SweepState, place: Place) -> None:
    """Replace the cached state of a sweep, unless it is too large."""
    text = dumps(state.to_dict()).encode()
    data = zlib.compress(text, 1)
    if len(data) > _MAX_BYTES or len(text) > _MAX_RATIO * len(data):
        return
    connection.execute(SNAPSHOTS.delete().where(SNAPSHOTS.c.sweep == sweep))
    total = checksum("snapshot", sweep, place.number, place.sum, data)
    row = {"sweep": sweep, "number": place.number, "state": data, "sum": total}
    connection.execute(SNAPSHOTS.insert(), row)


def _found(connection: sa.Connection, sweep: int) -> tuple[Any, int | None]:
    """The row of a sweep, and the sum of the record that it follows; None if it does not hold."""
    row = connection.execute(sa.select(SNAPSHOTS).where(SNAPSHOTS.c.sweep == sweep)).first()
    if row is None:
        return None, None
    mine = (RECORDS.c.sweep == sweep) & (RECORDS.c.number == row.number)
    last = connection.scalar(sa.select(RECORDS.c.sum).where(mine))
    holds = last is not None and row.sum == checksum("snapshot", sweep, row.number, last, row.state)
    return row, last if holds else None
