"""Lists the files of a trial's folder that are kept, and opens them as they are at one moment."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, Final

from workers.files.folder import Folder
from workers.protocol import LOGS

MAX_OPEN: Final = 200  # files at a time, of the 1,024 that a process may usually have open
# Folders of the workers, and what begins with a dot in the trial's own folder, are not kept.
NOT_KEPT: Final = (LOGS, "command")
_DRAFT: Final = re.compile(r"\.[0-9]+(\.[0-9]+)?")  # a checkpoint that is being written


@dataclass(frozen=True)
class FileIdentity:
    """A file as it was: if this is the same, so is its content.

    Args:
        device, inode: which file it is; a file that replaces another has its own.
        size: in bytes.
        changed: time of its last change, in nanoseconds.
        link: the target of a symbolic link; "" for a file.
    """

    device: int
    inode: int
    size: int
    changed: int
    link: str = ""

    @classmethod
    def of(cls, facts: os.stat_result, link: str = "") -> FileIdentity:
        """The identity of a file with these facts."""
        return cls(facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, link)


Listing = Mapping[str, FileIdentity]


class ChangedMeanwhile(Exception):
    """A file changed while it was read: there is no moment at which it was as it was read."""


def listed(folder: Folder) -> Listing:
    """The files in a trial's folder that are kept, by their path in it with slashes."""
    found: dict[str, FileIdentity] = {}
    top = len(folder.parts)
    for inner, name, facts in folder.walk():
        parts = (*inner.parts[top:], name)
        if parts[0] in NOT_KEPT or parts[0].startswith(".") or any(map(_DRAFT.fullmatch, parts)):
            continue
        path = "/".join(parts)
        if stat.S_ISREG(facts.st_mode):
            found[path] = FileIdentity.of(facts)
        elif stat.S_ISLNK(facts.st_mode):
            found[path] = FileIdentity.of(facts, str((inner.path / name).readlink()))
    return found


def opened(folder: Folder, path: str, identity: FileIdentity) -> IO[bytes]:
    """Open a listed file; raises ChangedMeanwhile if it is another one or gone."""
    *parts, name = path.split("/")
    for part in parts:
        folder = folder / part
    try:
        file: IO[bytes] = folder.open(name, "rb")
    except FileNotFoundError as error:
        raise ChangedMeanwhile(path) from error
    if FileIdentity.of(os.fstat(file.fileno())) != identity:
        file.close()
        raise ChangedMeanwhile(path)
    return file


class Moment:
    """The files of a folder at one moment; those that may be replaced stay readable.

    A program may replace and delete files while this reads them. An open file stays readable then,
    so the files together are those of one moment. Use it as a context; it closes the files.

    Args:
        folder: of the trial.
        known: files that need not be read.

    Raises:
        ChangedMeanwhile: files change right now.
    """

    def __init__(self, folder: Folder, known: Collection[FileIdentity]) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._files: dict[str, IO[bytes]] = {}
        try:
            self.listing = listed(folder)
            unread = [path for path, found in self.listing.items() if found not in known]
            for path in [path for path in unread if not self.listing[path].link][:MAX_OPEN]:
                file = opened(folder, path, self.listing[path])
                self._files[path] = self._stack.enter_context(file)
            if listed(folder) != self.listing:
                raise ChangedMeanwhile(str(folder.path))
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Moment:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def file(self, path: str) -> IO[bytes]:
        """The open file of a path; raises ChangedMeanwhile if it is another one by now."""
        if path not in self._files:
            file = opened(self._folder, path, self.listing[path])
            self._files[path] = self._stack.enter_context(file)
        return self._files[path]

    def close(self, path: str) -> None:
        """A file was read; raises ChangedMeanwhile if somebody has written to it meanwhile."""
        file = self._files.pop(path)
        identity = FileIdentity.of(os.fstat(file.fileno()))
        file.close()
        if identity != self.listing[path]:
            raise ChangedMeanwhile(path)
