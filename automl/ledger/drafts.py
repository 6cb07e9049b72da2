"""Drafts of a SQLite file: written beside it, then put in its place."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from automl.errors import StoreError
from workers.files.folder import Folder

from .lock import FileLock
from .sqlite_files import BESIDE

MAX_WAIT_SECONDS: Final = 30.0
_LOCK: Final = ".migration.lock"


@contextmanager
def exclusive_draft(file: Path) -> Iterator[Path]:
    """The path of a draft; it is removed at the end unless it has replaced the file.

    One process at a time makes, migrates or backs up a file, so a draft that is there already is
    left over from a process that was killed. It is removed too.

    Raises:
        StoreError: another process takes longer than `MAX_WAIT_SECONDS`.
    """
    folder = Folder(file.parent)
    lock = _locked(folder, file)
    draft = file.with_name(f".{file.name}.draft")
    try:
        _remove(folder, draft.name)
        yield draft
    finally:
        _remove(folder, draft.name)
        folder.unlink(_LOCK)
        lock.release()


def _locked(folder: Folder, file: Path) -> FileLock:
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    while True:
        lock = FileLock(folder, _LOCK)
        if lock.acquire() and not lock.replaced():
            return lock
        lock.release()
        if time.monotonic() > deadline:
            raise StoreError(
                f"{file}: another process is making or migrating it for more than "
                f"{MAX_WAIT_SECONDS:g} s"
            )
        time.sleep(0.05)


def _remove(folder: Folder, draft: str) -> None:
    """Remove a draft, and what SQLite has kept beside it."""
    for end in ("", *BESIDE):
        folder.unlink(f"{draft}{end}")
