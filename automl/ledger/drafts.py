"""Drafts of a SQLite file: written beside it, then put in its place."""

import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from automl.errors import StoreError
from workers.files.folder import Folder

from .lock import FileLock

WAIT_SECONDS: Final = 30.0
_LOCK: Final = ".migration.lock"


@contextmanager
def exclusive_draft(file: Path) -> Iterator[Path]:
    """The path of a draft; it is removed at the end unless it has replaced the file.

    One process at a time makes, migrates or backs up a file, so drafts that are there already are
    left over from processes that were killed. They are removed too.

    Raises:
        StoreError: another process takes longer than `WAIT_SECONDS`.
    """
    folder = Folder(file.parent)
    lock = _locked(folder, file)
    try:
        _remove_drafts(folder, file.name)
        yield file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    finally:
        _remove_drafts(folder, file.name)
        folder.unlink(_LOCK)
        lock.release()


def _locked(folder: Folder, file: Path) -> FileLock:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        lock = FileLock(folder, _LOCK)
        if lock.acquire() and not lock.replaced():
            return lock
        lock.release()
        if time.monotonic() > deadline:
            raise StoreError(
                f"{file}: another process is making or migrating it for more than "
                f"{WAIT_SECONDS:g} s"
            )
        time.sleep(0.05)


def _remove_drafts(folder: Folder, name: str) -> None:
    """Remove the drafts of a file, and what SQLite has kept beside them."""
    draft = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{32}}(-wal|-shm|-journal)?")
    for left in filter(draft.fullmatch, folder.names()):
        folder.unlink(left)
