"""The places where a command reports: a file of JSON lines, its output, a CSV file."""

import json
import os
import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from workers.files.folder import Folder

from .csv_file import CsvFile
from .metrics import Collector
from .output import Lines
from .patterns import PatternReports, usual_patterns

MAX_BYTES: Final = 1 << 20  # of a line, and of what is read at a time
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
        self.is_empty = True
        self._lines = Lines(MAX_BYTES)
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
                chunk = file.read(MAX_BYTES)
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
        self.is_empty = False
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


class Sources:
    """Reads the reports of a command from wherever it makes them.

    Args:
        collector: gets the reports.
        file: name of the file of JSON lines; folder: where it is made.
        patterns, goal: see `PatternReports`; without patterns and table, and as long as the file
            is empty, the usual lines of output count.
        goals: the metrics in usual lines.
        table: a CSV file of metrics; None if there is none.
    """

    def __init__(
        self,
        collector: Collector,
        file: str,
        folder: Folder,
        patterns: Mapping[str, str],
        goal: str,
        *,
        goals: Sequence[str] = (),
        table: Path | None = None,
    ) -> None:
        self._file = ReportFile(folder, file, collector)
        self._patterns: PatternReports | None = None
        self._usual = not patterns and table is None
        self._waiting: list[tuple[bytes, str]] = []  # output to search at the next look
        patterns = usual_patterns(goals) if self._usual else patterns
        if patterns:
            self._patterns = PatternReports(patterns, goal, collector, may_count=self._usual)
        self._table = CsvFile(table, collector) if table is not None else None

    def feed(self, chunk: bytes, stream: str) -> None:
        """Take in the next bytes of "stdout" or "stderr"."""
        if self._usual:
            self._waiting.append((chunk, stream))
        elif self._patterns is not None:
            self._patterns.feed(chunk, stream)

    def look(self) -> None:
        """Read what is new in files, at most about a megabyte."""
        self._file.read()
        self._search_usual()
        if self._table is not None:
            self._table.read()

    def close(self) -> None:
        """The command has ended: read the rest."""
        if self._patterns is not None and not self._usual:
            self._patterns.close()
        while self._file.read(last=True):
            pass
        self._search_usual()
        if self._patterns is not None and self._usual:
            self._patterns.close()
        if self._table is not None:
            self._table.read(last=True)

    def _search_usual(self) -> None:
        """Search the output since the last look; a command that writes to the file is not searched.

        Few lines of output name a goal by chance, but a command that reports has said what counts.
        """
        waiting, self._waiting = self._waiting, []
        if self._usual and not self._file.is_empty:
            self._usual, self._patterns = False, None
        if self._patterns is not None:
            for chunk, stream in waiting:
                self._patterns.feed(chunk, stream)
