"""Backups of a SQLite ledger while it is used: the three newest.

The chains of a new backup are verified before it takes its place, so damage replaces none.
"""

import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from automl.errors import AutomlError, StoreError
from workers.files.disk import flush
from workers.files.folder import Folder

from . import database
from .check import damage
from .drafts import exclusive_draft
from .head import HEAD, Head
from .records import Place
from .schema import VERSION
from .sqlite_files import check_files, connect, mode
from .store_errors import backups_of, existing_backups, translate_errors

BACKUP_SECONDS: Final = 300.0
_LOG = logging.getLogger(__name__)


class Backups:
    """Keeps a recent backup of a file, written by a thread of its own. Used from one thread.

    If a backup fails (no space is left), this is logged and tried again later: the ledger is whole.

    Args:
        file: of the ledger.
        brief: the file is held for a moment only: make no backup if the newest one is recent.
    """

    def __init__(self, file: Path, *, brief: bool = False) -> None:
        self._file = file
        self._thread: threading.Thread | None = None
        self._due = time.monotonic()
        self._at_end = True
        if brief and (newest := next(iter(existing_backups(file)), None)) is not None:
            age = max(0.0, time.time() - newest.stat().st_mtime)
            self._due += BACKUP_SECONDS - age
            self._at_end = age > BACKUP_SECONDS

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
        if self._at_end:
            try_back_up(self._file)


def try_back_up(file: Path) -> None:
    """Make a backup; log a failure instead of raising it."""
    try:
        back_up(file)
    except (OSError, sqlite3.Error, sa.exc.SQLAlchemyError, AutomlError) as error:
        _LOG.warning("no backup of %s could be made: %s", file, error)


def back_up(file: Path) -> None:
    """Make a copy of everything committed the newest backup; the oldest of three goes.

    Raises:
        OSError, sqlite3.Error, SQLAlchemyError, StoreError: the copy fails, or the ledger is
            damaged, or another process makes a backup and takes long; the earlier ones stay.
    """
    newest, older, oldest = backups_of(file)
    folder = Folder(file.parent, newest.parent.name)
    folder.make()
    with exclusive_draft(newest) as draft:
        known = Head(file).read()
        copy(file, draft)
        with contextlib.suppress(FileNotFoundError):
            flush(file.with_name(f"{file.name}{HEAD}"))
        if damage := damage_of(draft, known):
            raise sqlite3.DatabaseError(f"it is damaged: {damage[0]}")
        for old, new in ((older, oldest), (newest, older), (draft, newest)):
            if old.exists():
                folder.rename(old.name, new.name)


def damage_of(file: Path, known: Mapping[int, Place | None] | None = None) -> list[str]:
    """What is damaged in a SQLite file that nobody uses, a sentence each.

    Args:
        known: the newest records that must be in it, by id of sweep.
    """
    try:
        engine = database.plain_engine(lambda: connect(file, "mode=ro&immutable=1"))
        if database.checked_version(engine, str(file)) < VERSION:
            engine = database.open_file(file, readonly=True)
        with translate_errors(str(file)), engine.connect() as connection:
            return damage(connection, str(file), known or {})
    except StoreError as error:
        return [str(error)]


def copy(file: Path, target: Path, *, readonly: bool = False) -> None:
    """Write a checked copy of a SQLite file that others may be using.

    Args:
        readonly: do not open the file for writing. Otherwise its log is brought into it at the end
            if nobody else uses it.

    Raises:
        OSError, sqlite3.Error: the copy fails, or the file is damaged.
    """
    check_files(target, written=True)
    with closing(connect(file, mode(file, readonly=readonly))) as source:
        with closing(sqlite3.connect(target)) as connection:
            source.backup(connection)
            connection.execute("PRAGMA journal_mode=DELETE")  # everything in one file
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise sqlite3.DatabaseError(f"it is damaged: {found}")
    flush(target)
