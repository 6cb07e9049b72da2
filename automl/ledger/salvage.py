"""Reads the sound rows of a SQLite ledger that is damaged."""

import os
import sqlite3
import struct
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO, Any, Final

import sqlalchemy as sa

from automl.errors import AutomlError

from . import sums
from .rows import COMMAND, Row
from .schema import EVENTS, HOLDERS, REPORTS, SWEEPS, TRIALS
from .sqlite_files import check_files, connect
from .wal import LoggedPages, committed_pages, next_data

Rows = dict[str, dict[tuple[Any, ...], Row]]
_LARGEST_PAGE: Final = 65536
_MOST_PAGES: Final = 0xFFFFFFFE  # of a SQLite file
_CHUNK: Final = 1 << 20  # bytes that are copied at once
_TABLES: Final = (SWEEPS, HOLDERS, TRIALS, REPORTS, EVENTS)


def sound_rows(file: Path, schemas: Sequence[bytes] = ()) -> Rows:
    """The rows that have their checksums, by table and primary key.

    The columns of a sweep that change are in "progress", the others in "sweeps".

    Args:
        schemas: first pages of other ledgers. The first page says where each table is, and a copy
            of a ledger has the same one.
    """
    found: Rows = {name: {} for name in (*(table.name for table in _TABLES), "progress")}
    check_files(file, written=False)
    logs = [_logged(file, sound=True), _logged(file, sound=False)]
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder) / "ledger"
        for logged in logs[:1] if logs[0] == logs[1] else logs:
            _write_image(file, logged, image)
            with image.open("rb") as written:
                page = written.read(_LARGEST_PAGE)
            for first in dict.fromkeys((b"", *schemas)):
                _replace_beginning(image, first + page[len(first) :])
                _collect(image, found)
    return found


def first_page(file: Path) -> bytes:
    """The first page of a SQLite file; it holds the schema of a ledger."""
    with file.open("rb") as opened:
        header = opened.read(100)
        return header + opened.read(max(0, _page_size(header) - 100))


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


def _logged(file: Path, *, sound: bool) -> LoggedPages:
    """The pages in the log of a file; see `committed_pages`."""
    with file.open("rb") as opened:
        page_size = _page_size(opened.read(18))
    log = file.with_name(f"{file.name}-wal")
    if not log.exists():
        return LoggedPages(page_size, 0, [])
    with log.open("rb") as opened:
        return committed_pages(opened.fileno(), page_size, sound=sound)


def _write_image(file: Path, logged: LoggedPages, image: Path) -> None:
    """Write a file with what its log holds, as one file without a log. Holes stay holes."""
    with file.open("rb") as source, image.open("wb") as target:
        place = next_data(source.fileno(), 0)
        while place is not None:
            data = os.pread(source.fileno(), _CHUNK, place)
            target.seek(place)
            target.write(data)
            place = next_data(source.fileno(), place + len(data))
        target.truncate(os.fstat(source.fileno()).st_size)
        if logged.places:
            _apply_log(file.with_name(f"{file.name}-wal"), logged, target)


def _apply_log(log: Path, logged: LoggedPages, target: IO[bytes]) -> None:
    with log.open("rb") as source:
        for page, place in logged.places:
            if 0 < page <= logged.num_pages:
                target.seek((page - 1) * logged.page_size)
                target.write(os.pread(source.fileno(), logged.page_size, place))


def _replace_beginning(image: Path, header: bytes) -> None:
    """Replace the beginning of a file; its header is made to fit its size."""
    changed = bytearray(header)
    if len(changed) >= 100:
        size = max(image.stat().st_size, len(changed))
        num_pages = size // (_page_size(changed) or 1)
        changed[18:20] = b"\x01\x01"  # the file format without a log
        changed[28:32] = struct.pack(">I", min(num_pages, _MOST_PAGES))
    with image.open("r+b") as target:
        target.write(changed)


def _page_size(header: bytes | bytearray) -> int:
    size = int(struct.unpack_from(">H", header.ljust(18, b"\0"), 16)[0])
    return 65536 if size == 1 else size
