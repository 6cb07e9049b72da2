"""Backups of a SQLite ledger while it is used: the three newest.

The chains of a new backup are verified before it takes its place, so damage replaces none.
"""

import contextlib
import logging
import os
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from automl.errors import AutomlError, StoreError, UsageError
from workers.files.disk import flush
from workers.files.folder import Folder

from .check import damage_of
from .database import locate, open_file, shown
from .drafts import exclusive_draft
from .head import HEAD, Head
from .lease import read_leases
from .sqlite_files import copy
from .store_errors import backups_of, damaged, existing_backups, translated

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
    except (OSError, sqlite3.Error, AutomlError) as error:
        _LOG.warning("no backup of %s could be made: %s", file, error)


def back_up(file: Path) -> None:
    """Make a copy of everything committed the newest backup; the oldest of three goes.

    Raises:
        OSError, sqlite3.Error, StoreError: the copy fails, or the ledger is
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


def back_up_to(store: str | os.PathLike[str], target: Path) -> int:
    """Copy a SQLite ledger, which may be in use, to a new file.

    Returns:
        The number of trials in the copy.

    Raises:
        UsageError: the store is a server, or the new file exists.
        StoreError: the ledger is damaged, or the copy cannot be written.
    """
    _, file, _ = locate(store)
    if file is None:
        raise UsageError(f"{shown(store)} is a server: copy it with pg_dump")
    if target.exists():
        raise UsageError(f"{target} exists already: name a new file")
    open_file(file, readonly=True).close()
    known = Head(file).read()
    try:
        with translated(str(target)), exclusive_draft(target) as draft:
            copy(file, draft, readonly=True)
            if found := damage_of(draft, known):
                raise damaged(str(file), found[0])
            draft.rename(target)
    except sqlite3.Error as error:
        raise StoreError(f"{file} could not be copied to {target}: {error}") from error
    with closing(open_file(target, readonly=True)) as copied, copied.transaction() as connection:
        return sum(lease["num_trials"] for lease in read_leases(connection).values())
