"""The lock of a sweep in a folder: the kernel frees it when its process ends."""

import fcntl
import os
from pathlib import Path

from automl.errors import StoreError


class FileLock:
    """An exclusive lock on a file. It never waits."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def acquire(self) -> bool:
        """Try to take the lock; True on success."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Give the lock back; a second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def lock_of(folder: Path) -> FileLock:
    """The lock of a sweep's folder.

    No symbolic link may lead its files out of the store: the folder, its parent and the folders of
    its trials are checked. The store itself may be a link.

    Raises:
        StoreError: one of them is a symbolic link.
    """
    inside = [folder.parent, folder, folder / "trials"]
    if inside[-1].is_dir() and not inside[-1].is_symlink():
        inside += list(inside[-1].iterdir())
    for path in inside:
        if path.is_symlink():
            raise StoreError(
                f"{path} is a symbolic link: the files of a sweep stay in its store. "
                "Remove the link"
            )
    return FileLock(folder / "controller.lock")
