"""One controller a sweep: a lock that the kernel frees with the process, and a row that says who holds it."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path
from typing import Final

import psutil

STALE_SECONDS: Final = 60.0
FUTURE_SECONDS: Final = 5.0


def process_started(pid: int) -> float | None:
    """When a process began, on a scale that no change of the clock moves; None where there is no such process."""
    try:
        return float(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        pass
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def alive(host: str, pid: int, started: float | None, age: float) -> bool:
    """Whether the controller of a row still runs.

    Args:
        host, pid, started: of its process, which is looked for where it is on this host.
        age: seconds since its last sign of life, by which it is judged on another host; one that comes from the
            future is none, because a clock was set.
    """
    if host == socket.gethostname():
        found = process_started(pid)
        return found is not None and (started is None or abs(found - started) < 2)
    return -FUTURE_SECONDS < age < STALE_SECONDS


class FileLock:
    """An exclusive lock on a file, without waiting."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def acquire(self) -> bool:
        """Whether the lock is ours now."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Give it back; a second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
