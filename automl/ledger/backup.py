"""Backups of a SQLite ledger while it is used. A new one is checked, then replaces the old one."""

import logging
import sqlite3
import threading
import time
import uuid
from contextlib import closing
from pathlib import Path
from typing import Final

from workers.files.disk import flush

from .store_errors import backup_of

BACKUP_SECONDS: Final = 300.0
_LOG = logging.getLogger(__name__)


class Backups:
    """Keeps a recent backup of a file, written by a thread of its own. Used from one thread.

    If a backup fails (no space is left), this is logged and tried again later: the ledger is whole.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._thread: threading.Thread | None = None
        self._due = time.monotonic()

    def tick(self) -> None:
        """Start a backup if one is due. Call it after each commit."""
        if time.monotonic() >= self._due and not (self._thread and self._thread.is_alive()):
            self._due = time.monotonic() + BACKUP_SECONDS
            self._thread = threading.Thread(
                target=try_back_up, args=(self._file,), name="automl-backup", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """Make the last backup."""
        if self._thread:
            self._thread.join()
        try_back_up(self._file)


def try_back_up(file: Path) -> None:
    """Make a backup; log a failure instead of raising it."""
    try:
        back_up(file)
    except (OSError, sqlite3.Error) as error:
        _LOG.warning("no backup of %s could be made: %s", file, error)


def back_up(file: Path) -> None:
    """Replace the backup of a file by a copy of everything committed.

    Raises:
        OSError, sqlite3.Error: the copy fails, or the file is damaged; an earlier backup stays.
    """
    place = backup_of(file)
    place.parent.mkdir(exist_ok=True)
    draft = place.with_name(f".{place.name}.{uuid.uuid4().hex}")
    try:
        copy(file, draft)
        draft.replace(place)
    finally:
        for left in (draft, Path(f"{draft}-journal"), Path(f"{draft}-wal")):
            left.unlink(missing_ok=True)


def copy(file: Path, target: Path) -> None:
    """Write a checked copy of a SQLite file that others may be using.

    Raises:
        OSError, sqlite3.Error: the copy fails, or the file is damaged.
    """
    with closing(sqlite3.connect(file.as_uri() + "?mode=rw", uri=True)) as source:
        with closing(sqlite3.connect(target)) as connection:
            source.backup(connection)
            connection.execute("PRAGMA journal_mode=DELETE")  # everything in one file
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise sqlite3.DatabaseError(f"it is damaged: {found}")
    flush(target)
