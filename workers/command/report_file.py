"""Reads the JSON lines that a command appends to the file named in AUTOML_REPORTS."""

from __future__ import annotations

import json
import os
import reprlib
from typing import Final

from workers.files.folder import Folder

from .metrics import Collector
from .output import Lines

MOST_BYTES: Final = 1 << 20  # of a line, and of what is read at a time
SOURCE: Final = "AUTOML_REPORTS"


class ReportFile:
    """Reads a file of JSON lines while a command appends to it.

    A line that does not end yet waits. A file that has become shorter is read from its beginning.

    Args:
        folder, name: of the file, which is created.
        collector: gets the reports.
    """

    def __init__(self, folder: Folder, name: str, collector: Collector) -> None:
        self._folder = folder
        self._name = name
        self._collector = collector
        self._read = 0
        self._number = 0  # of the newest line
        self._lines = Lines(MOST_BYTES)
        folder.open(name, "xb").close()

    def read(self, *, last: bool = False) -> bool:
        """Read what is new, at most a megabyte; returns whether there is more.

        Args:
            last: the command has ended: a line without an end counts too.
        """
        try:
            with self._folder.open(self._name) as file:
                size = os.fstat(file.fileno()).st_size
                if size < self._read:
                    self._read = 0
                    self._lines.rest()
                file.seek(self._read)
                chunk = file.read(MOST_BYTES)
        except FileNotFoundError:  # the command replaces or has removed it
            return False
        self._read += len(chunk)
        for line in self._lines.feed(chunk):
            self._take(line)
        more = self._read < size
        if last and not more:
            self._take(self._lines.rest())
        return more

    def _take(self, line: bytes) -> None:
        self._number += 1
        if not line.strip():
            return
        source = f"{SOURCE}, line {self._number}"
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            self._collector.complain(f"{source} is not JSON: {reprlib.repr(line)}")
            return
        if not isinstance(found, dict):
            self._collector.complain(f"{source} is not a JSON object: {reprlib.repr(found)}")
        elif "step" in found:
            self._collector.report(found.pop("step"), found, source)
        else:
            self._collector.finish(found, source)
