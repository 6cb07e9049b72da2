"""The lock of a sweep in a folder: the kernel frees it when its process ends."""

import fcntl
import os

from workers.files.folder import Folder

from .store_errors import BACKUP


class FileLock:
    """An exclusive lock on a file, which is made in a folder of the store. It never waits."""

    def __init__(self, folder: Folder, name: str) -> None:
        folder.make()
        self._place = (folder, name)
        self._file = folder.open_descriptor(name, "a")

    def acquire(self) -> bool:
        """Try to take the lock; True on success."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def replaced(self) -> bool:
        """Whether its file was removed, so that another process may hold a lock on a new one."""
        folder, name = self._place
        facts = folder.check_file(name, written=True)
        return facts is None or not os.path.samestat(facts, os.fstat(self._file))

    def release(self) -> None:
        """Give the lock back; a second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def lock_of(folder: Folder) -> FileLock:
    """The lock of a sweep's folder.

    Raises:
        StoreError: the folder, its lock, a folder of a trial or that of the backups is a link, or
            is not a folder.
    """
    Folder(folder.root, BACKUP).names()
    trials = folder / "trials"
    for name in filter(str.isdecimal, trials.names()):
        with (trials / name).descriptor():
            pass
    return FileLock(folder, "controller.lock")
