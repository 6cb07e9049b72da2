"""Cached states of sweeps, so that a reader folds only the newest records.

A snapshot is sealed together with the record that it follows. One that does not fit is ignored.
"""

from __future__ import annotations

import json
import zlib
from typing import Final

import sqlalchemy as sa

from automl.core import SweepState
from automl.errors import AutomlError

from .records import BEGINNING, Place, checksum, dumps
from .schema import RECORDS, SNAPSHOTS

_MAX_RATIO: Final = 100  # of the text to what is stored
_MAX_BYTES: Final = 1 << 24  # that are stored


def read(connection: sa.Connection, sweep: int) -> tuple[SweepState | None, Place]:
    """The cached state of a sweep, and its place in the log; None if there is none that holds."""
    row = connection.execute(sa.select(SNAPSHOTS).where(SNAPSHOTS.c.sweep == sweep)).first()
    if row is None:
        return None, BEGINNING
    mine = (RECORDS.c.sweep == sweep) & (RECORDS.c.number == row.number)
    last = connection.scalar(sa.select(RECORDS.c.sum).where(mine))
    if last is None or checksum("snapshot", sweep, row.number, last, row.state) != row.sum:
        return None, BEGINNING
    try:
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(row.state, _MAX_RATIO * len(row.state))
        return SweepState.from_dict(json.loads(text)), Place(row.number, last)
    except (zlib.error, ValueError, LookupError, TypeError, AttributeError, AutomlError):
        return None, BEGINNING


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
