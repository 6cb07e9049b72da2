"""Numbered folders of files with hashes: every one is complete, and a damaged one is noticed.

<root>/00000420/manifest.json    facts, and sha256 of the other files
"""

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Final

from .folder import Folder

MANIFEST: Final = "manifest.json"


class Draft:
    """A numbered folder that is being written, under another name until it is complete.

    Args:
        root: in which folder.
        number: names it; the highest is the newest.

    Raises:
        OSError: the folder cannot be written; earlier ones remain. So do the other methods.
    """

    def __init__(self, root: Folder, number: int) -> None:
        self._root = root
        self._final = f"{number:08d}"
        self._name = f".{self._final}.{os.getpid()}"
        self._files = root / self._name
        self._files.remove()
        self._files.make()
        self._hashes: dict[str, dict[str, str]] = {}

    @property
    def names(self) -> list[str]:
        """The files that have been written."""
        return list(self._hashes)

    def write(self, name: str, write: Callable[[IO[bytes]], str]) -> None:
        """Write a file; `write` writes its content and returns its sha256."""
        with self._files.open(name, "wb") as file:
            self._hashes[name] = {"sha256": write(file)}

    def add(self, name: str, place: Callable[[Path], None]) -> None:
        """Add a file that `place` puts at a path."""
        place(self._files.path / name)
        self._hashes[name] = {"sha256": self._files.sha256(name)}

    def finish(self, facts: Mapping[str, Any], *, keep: int = 2, wait: bool = True) -> Path:
        """Replace a folder of the same number, and delete all but the newest `keep`.

        Args:
            facts: for the manifest, JSON.
            keep: how many remain.
            wait: until the files are on disk. If not, the hashes show what a power failure has
                damaged.
        """
        with self._files.open(MANIFEST, "w") as text:
            json.dump({**facts, "files": self._hashes}, text, indent=1, sort_keys=True)
        for name in (*self._hashes, MANIFEST) if wait else ():
            with self._files.open(name) as file:
                os.fsync(file.fileno())
        final = self._root / self._final
        final.remove()
        self._root.rename(self._name, self._final)
        if wait:
            self._root.flush()
        for old in newest_first(self._root)[keep:]:
            with contextlib.suppress(OSError):
                old.remove()
        return final.path


def newest_first(root: Folder) -> list[Folder]:
    """The numbered folders; they may be damaged."""
    numbers = [name for name in root.names() if name.isdecimal()]
    return [root / name for name in sorted(numbers, key=int, reverse=True)]


def verified(folder: Folder, format_number: int, *names: str) -> dict[str, Any] | None:
    """The manifest of a folder if its format is right and it has these files, else None.

    The hash of each file that it names is right too.
    """
    try:
        manifest = json.loads(folder.read(MANIFEST))
        hashes: Mapping[str, Any] = manifest["files"]
        sound = manifest["format"] == format_number
        sound = sound and set(names) <= set(hashes)
        sound = sound and all(folder.sha256(name) == hashes[name]["sha256"] for name in hashes)
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
    ):  # StoreError is a ValueError
        return None
    return manifest if sound else None
