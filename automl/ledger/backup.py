"""Backups of a SQLite ledger while it is used: the three newest.

The chains of a new backup are verified before it takes its place, so damage replaces none.
"""

import contextlib
import logging
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from automl.errors import AutomlError, StoreError, UsageError
from workers.files.disk import flush
from workers.files.folder import Folder

from . import database
from .damage import damage_in
from .drafts import exclusive_draft
from .engines import checked_version, plain_engine
from .head import HEAD, Head
from .lease import read_leases
from .records import Place
from .schema import VERSION
from .sqlite_files import connect, copy
from .store_errors import backups_of, damaged, existing_backups, translate_errors

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
        engine = plain_engine(lambda: connect(file, "mode=ro&immutable=1"))
        if checked_version(engine, str(file)) < VERSION:
            engine = database.open_file(file, readonly=True)
        with translate_errors(str(file)), engine.connect() as connection:
            return damage_in(connection, str(file), known or {})
    except StoreError as error:
        return [str(error)]


def back_up_to(store: str | os.PathLike[str], target: Path) -> int:
    """Copy a SQLite ledger, which may be in use, to a new file.

    Returns:
        The number of trials in the copy.

    Raises:
        UsageError: the store is a server, or the new file exists.
        StoreError: the ledger is damaged, or the copy cannot be written.
    """
    _, file, _ = database.locate(store)
    if file is None:
        raise UsageError(f"{database.shown(store)} is a server: copy it with pg_dump")
    if target.exists():
        raise UsageError(f"{target} exists already: name a new file")
    database.open_file(file, readonly=True).dispose()
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    known = Head(file).read()
    try:
        with translate_errors(str(target)):
            copy(file, draft, readonly=True)
            if found := damage_of(draft, known):
                raise damaged(str(file), found[0])
            draft.rename(target)
    except sqlite3.Error as error:
        raise StoreError(f"{file} could not be copied to {target}: {error}") from error
    finally:
        draft.unlink(missing_ok=True)
    with database.open_file(target, readonly=True).connect() as connection:
        return sum(lease["num_trials"] for lease in read_leases(connection).values())
