"""Cached states of sweeps, so that a reader folds only the newest records.

A snapshot is sealed together with the record that it follows. One that does not fit is ignored.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, Final

from automl.core import SweepState
from automl.core.plain_data import compact_json
from automl.errors import AutomlError

from .records import Place, checksum
from .schema import insert
from .sqlite_files import Connection

_MAX_RATIO: Final = 100  # of the text to what is stored
_MAX_BYTES: Final = 1 << 24  # that are stored
_FIND: Final = """
SELECT snapshots.number, state, snapshots.sum, records.sum FROM snapshots
LEFT JOIN records ON records.sweep = snapshots.sweep AND records.number = snapshots.number
WHERE snapshots.sweep = :sweep
"""


def read(connection: Connection, sweep: int) -> tuple[SweepState, Place] | None:
    """The cached state of a sweep, and its place in the log; None if there is none that holds."""
    row = connection.execute(_FIND, {"sweep": sweep}).fetchone()
    if row is None or not _holds(sweep, row):
        return None
    number, data, _, last = row
    try:
        text = zlib.decompressobj().decompress(data, _MAX_RATIO * len(data))
        return SweepState.from_dict(json.loads(text)), Place(number, last)
    except (zlib.error, ValueError, LookupError, TypeError, AttributeError, AutomlError):
        return None


def is_sound(connection: Connection, sweep: int) -> bool:
    """Whether the cached state of a sweep, if there is one, has its sum."""
    row = connection.execute(_FIND, {"sweep": sweep}).fetchone()
    return row is None or _holds(sweep, row)


def write(connection: Connection, sweep: int, state: SweepState, place: Place) -> None:
    """Replace the cached state of a sweep, unless it is too large."""
    text = compact_json(state.to_dict()).encode()
    data = zlib.compress(text, 1)
    if len(data) > _MAX_BYTES or len(text) > _MAX_RATIO * len(data):
        return
    connection.execute("DELETE FROM snapshots WHERE sweep = :sweep", {"sweep": sweep})
    total = checksum("snapshot", sweep, *place, data)
    row = {"sweep": sweep, "number": place.number, "state": data, "sum": total}
    insert(connection, "snapshots", [row])


def _holds(sweep: int, row: Any) -> bool:
    number, data, total, last = row
    return last is not None and total == checksum("snapshot", sweep, number, last, data)
