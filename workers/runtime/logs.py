"""Keeps the log of a rank below a size: its first part and its newest part stay."""

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from search_spaces.errors import StoreError
from workers.files.folder import Folder
from workers.protocol import LOGS, Assignment, log_name

LOG_BYTES: Final = 64 << 20
LOOK_SECONDS: Final = 0.2


def redirect(descriptors: dict[int, int]) -> None:
    """Let standard output (1) and standard error (2) of this process go to these descriptors.

    C libraries, and programs that are started from now on, write there too.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # an objective may have closed it
            stream.flush()
    ctypes.CDLL(None).fflush(None)  # what C's printf keeps back
    for target, descriptor in descriptors.items():
        os.dup2(descriptor, target)


@contextmanager
def bounded_log(assignment: Assignment, rank: int, most: int = LOG_BYTES) -> Iterator[None]:
    """While inside, shorten the log of a rank whenever it is longer than `most` bytes.

    A thread looks at the file, because programs that the objective starts write to it too.
    """
    logs = assignment.files / LOGS
    name = log_name(assignment.attempt, rank)
    over = threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_SECONDS):
            shorten(logs, name, most)

    thread = threading.Thread(target=watch, name="automl-log", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        shorten(logs, name, most)


def shorten(folder: Folder, name: str, most: int) -> None:
    """Cut the middle out of a file that is longer than `most` bytes.

    The first half of `most` and the newest quarter stay. Those who append to the file go on behind
    them; what they write in the moment of the cut is lost. Does nothing if the file cannot be
    changed.
    """
    try:
        with folder.open(name, "rb") as old, folder.open(name, "ab") as new:
            size = os.fstat(old.fileno()).st_size
            if size <= most:
                return
            old.seek(size - most // 4)
            newest = b""
            while more := old.read():  # others write while this reads
                newest += more
            os.truncate(new.fileno(), most // 2)
            new.write(b"\n... the middle of this log is left out ...\n" + newest)
    except (OSError, StoreError):
        return
