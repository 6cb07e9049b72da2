"""Reads the sound rows of a SQLite ledger that is damaged."""

import sqlite3
import struct
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from automl.errors import AutomlError

from . import sums, wal
from .rows import COMMAND, Row
from .schema import EVENTS, HOLDERS, REPORTS, SWEEPS, TRIALS
from .sqlite_files import check_files, connect

Rows = dict[str, dict[tuple[Any, ...], Row]]
_TABLES: Final = (SWEEPS, HOLDERS, TRIALS, REPORTS, EVENTS)


def sound_rows(file: Path, schemas: Sequence[bytes] = ()) -> Rows:
    """The rows that have their checksums, by table and primary key.

    The columns of a sweep that change are in "progress", the others in "sweeps".

    Args:
        schemas: first pages of other ledgers. The first page says where each table is, and a copy
            of a ledger has the same one.
    """
    found: Rows = {name: {} for name in (*(table.name for table in _TABLES), "progress")}
    images = [_image(file, sound=True), _image(file, sound=False)]
    changed = [_with_first_page(image, first) for image in images for first in (b"", *schemas)]
    with tempfile.TemporaryDirectory() as folder:
        for image in dict.fromkeys(changed):
            place = Path(folder) / "ledger"
            place.write_bytes(image)
            _collect(place, found)
    return found


def first_page(file: Path) -> bytes:
    """The first page of a SQLite file; it holds the schema of a ledger."""
    with file.open("rb") as opened:
        head = opened.read(100)
        return head + opened.read(max(0, _page_size(head) - 100))


def _collect(image: Path, found: Rows) -> None:
    """Add the sound rows of a file, unless its schema is not ours."""
    try:
        connection = connect(image, "mode=ro&immutable=1")
    except (sqlite3.Error, ValueError, AutomlError):
        return
    with closing(connection):
        connection.text_factory = lambda data: data.decode(errors="surrogateescape")
        for table in _TABLES:
            keys = [column.name for column in table.primary_key]
            for row in _read(connection, table):
                for name in _sound(table.name, row):
                    key = tuple(row[key] for key in keys)
                    known = found[name].get(key)
                    if known is None or _age(name, known) < _age(name, row):
                        found[name][key] = row


def _age(name: str, row: Row) -> tuple[float, ...]:
    """What grows as a row changes: the newest version of a row is kept."""
    columns = {
        "holders": ("fence", "commits"),
        "progress": ("num_commands", "seconds"),
        "trials": ("attempts", "num_reports", "seconds"),
    }
    return tuple(row[column] for column in columns.get(name, ()))


def _sound(table: str, row: Row) -> Iterator[str]:
    """What the row is sound as."""
    checksums = {
        "sweeps": [("sweeps", sums.SWEEP), ("progress", sums.PROGRESS)],
        "holders": [("holders", sums.HOLDER)],
        "trials": [("trials", sums.TRIAL)],
        "reports": [("reports", sums.REPORT)],
        "events": [("events", sums.COMMAND if row.get("kind") == COMMAND else sums.EVENT)],
    }
    for name, checksum in checksums[table]:
        if checksum.holds(row):
            yield name


def _read(connection: sqlite3.Connection, table: sa.Table) -> Iterator[Row]:
    """The rows of a table up to the first damaged page, from its beginning and from its end.

    Columns are told by their places, because their names may be damaged.
    """
    names = table.c.keys()
    for direction in ("ASC", "DESC"):
        order = ", ".join(f"{names.index(key.name) + 1} {direction}" for key in table.primary_key)
        try:
            for row in connection.execute(f"SELECT * FROM {table.name} ORDER BY {order}"):
                if len(row) == len(names):
                    yield dict(zip(names, row, strict=True))
        except (sqlite3.Error, OverflowError):
            continue
        return


def _image(file: Path, *, sound: bool) -> bytes:
    """The file with what its log holds, as one file without a log; see `wal.committed_pages`."""
    check_files(file, written=False)
    image = bytearray(file.read_bytes())
    log = file.with_name(f"{file.name}-wal")
    logged = log.read_bytes() if log.exists() else b""
    for page, size, data in wal.committed_pages(logged, sound=sound):
        start = (page - 1) * len(data)
        if 0 < page <= size:
            image.extend(bytes(max(0, start + len(data) - len(image))))
            image[start : start + len(data)] = data
    return bytes(image)


def _with_first_page(image: bytes, first: bytes) -> bytes:
    """A file with another first page, if there is one, and with a header that fits its size."""
    changed = bytearray(first + image[len(first) :])
    if len(changed) >= 100:
        changed[18:20] = b"\x01\x01"  # the file format without a log
        changed[28:32] = struct.pack(">I", len(changed) // (_page_size(changed) or 1))
    return bytes(changed)


def _page_size(head: bytes | bytearray) -> int:
    size = int(struct.unpack_from(">H", head.ljust(18, b"\0"), 16)[0])
    return 65536 if size == 1 else size
