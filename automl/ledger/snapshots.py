"""Cached states of sweeps, so that a reader folds only the newest records.

A snapshot that is damaged is ignored.
"""

from __future__ import annotations

import json
import zlib

from automl.core import SweepState
from automl.core.arguments import compact_json
from automl.errors import AutomlError

from .schema import checksum, insert, select
from .sqlite_files import Connection

_MAX_BYTES = 1 << 24  # that are stored


def read(connection: Connection, sweep: int) -> tuple[SweepState, int] | None:
    """The cached state of a sweep, and the number of the record that it follows; or None."""
    query = select("snapshots", "WHERE sweep = :sweep")
    row = connection.execute(query, {"sweep": sweep}).fetchone()
    if row is None or row[3] != checksum(sweep, row[1], zlib.crc32(row[2])):
        return None
    try:
        return SweepState.from_dict(json.loads(zlib.decompress(row[2]))), row[1]
    except (zlib.error, ValueError, LookupError, TypeError, AttributeError, AutomlError):
        return None


def write(connection: Connection, sweep: int, state: SweepState, number: int) -> None:
    """Replace the cached state of a sweep, unless it is too large."""
    data = zlib.compress(compact_json(state.to_dict()).encode(), 1)
    if len(data) <= _MAX_BYTES:
        connection.execute("DELETE FROM snapshots WHERE sweep = :sweep", {"sweep": sweep})
        total = checksum(sweep, number, zlib.crc32(data))
        row = {"sweep": sweep, "number": number, "state": data, "sum": total}
        insert(connection, "snapshots", [row])
