"""Which files in the folder of a command have changed while it ran."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

MAX_ENTRIES: Final = 2000  # that are looked at
MAX_CHANGED: Final = 50
MAX_DEPTH: Final = 3
CLOCK_SECONDS: Final = 0.01  # to which Linux rounds the time of a change
_SKIPPED: Final = ("__pycache__", "node_modules", "venv")


def changed_files(folder: str, began: float, ended: float) -> dict[str, Any]:
    """The files that anybody has changed there, for `automl.core.advice`.

    Args:
        folder: where a command ran; what is hidden in it is left out.
        began, ended: of the command, in seconds since 1970.
    """
    changed: dict[str, float] = {}
    for number, entry in enumerate(_files(folder, MAX_DEPTH)):
        if number >= MAX_ENTRIES or len(changed) >= MAX_CHANGED:
            break
        with suppress(OSError):  # it was removed meanwhile
            at = entry.stat(follow_symlinks=False).st_mtime
            if at >= began - CLOCK_SECONDS:
                changed[os.path.relpath(entry.path, folder)] = at
    place = f"{socket.gethostname()}:{folder}"
    return {"place": place, "began": began, "ended": ended, "changed": changed}


def _files(folder: str, depth: int) -> Iterator[os.DirEntry[str]]:
    """The files of a folder, then those below it, to a depth."""
    below = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") or entry.name in _SKIPPED:
                continue
            if entry.is_file(follow_symlinks=False):
                yield entry
            elif depth > 1 and entry.is_dir(follow_symlinks=False):
                below.append(entry)
    for entry in below:
        yield from _files(entry.path, depth - 1)
