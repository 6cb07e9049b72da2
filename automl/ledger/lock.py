"""The lock of a sweep in a folder: the kernel frees it when its process ends."""

import fcntl

from workers.files.folder import Folder


class FileLock:
    """An exclusive lock on a file, which is made in a folder of the store. It never waits."""

    def __init__(self, folder: Folder, name: str) -> None:
        folder.make()
        self._file = folder.open(name, "ab")

    def acquire(self) -> bool:
        """Try to take the lock; True on success."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Give the lock back; a second call does nothing."""
        self._file.close()
