"""The places where a command reports: a file, its standard output, TensorBoard's event files."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from search_spaces.errors import StoreError
from workers.files.folder import Folder

from .metrics import Collector
from .patterns import PatternReports
from .report_file import ReportFile
from .tensorboard import EventFiles

COUNT: Final = "steps"  # file of the last step, if steps are counted
CLOCK_SECONDS: Final = 2.0  # to which file systems round the time of a change


class Sources:
    """Reads the reports of a command from wherever it makes them.

    Args:
        collector: gets the reports.
        file: name of the file of JSON lines; folder: where it is made.
        patterns, goal: see `PatternReports`.
        kept: folder that outlives the attempt, for the number of counted steps.
        goes_on: the attempt goes on from a checkpoint, so counted steps do too.
        events: the folder of TensorBoard's event files; None if there are none.
    """

    def __init__(
        self,
        collector: Collector,
        file: str,
        folder: Folder,
        patterns: Mapping[str, str],
        goal: str,
        kept: Folder,
        *,
        goes_on: bool,
        events: Path | None,
    ) -> None:
        self._file = ReportFile(folder, file, collector)
        self._patterns: PatternReports | None = None
        if patterns:
            step = _count(kept) if goes_on else 0
            counted = _counter(kept)
            self._patterns = PatternReports(patterns, goal, collector, step, counted)
        self._events: EventFiles | None = None
        if events is not None:
            self._events = EventFiles(events, time.time() - CLOCK_SECONDS, collector)

    def feed(self, chunk: bytes) -> None:
        """Take in the next bytes of standard output."""
        if self._patterns is not None:
            self._patterns.feed(chunk)

    def look(self) -> None:
        """Read what is new in files, at most about a megabyte."""
        self._file.read()
        if self._events is not None:
            self._events.read()

    def close(self) -> None:
        """The command has ended: read the rest."""
        if self._patterns is not None:
            self._patterns.close()
        while self._file.read(last=True):
            pass
        if self._events is not None:
            self._events.read()


def _count(folder: Folder) -> int:
    """The last step that an earlier attempt has counted; 0 if there is none."""
    try:
        return int(folder.read(COUNT))
    except (OSError, ValueError):  # StoreError is a ValueError
        return 0


def _counter(folder: Folder) -> Callable[[int], None]:
    def counted(step: int) -> None:
        with suppress(OSError, StoreError), folder.open(COUNT, "w") as file:
            file.write(str(step))

    return counted
