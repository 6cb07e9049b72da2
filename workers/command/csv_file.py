"""Reads the metrics of a command from a CSV file, such as that of Lightning's CSVLogger."""

from __future__ import annotations

import csv
import string
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from search_spaces.errors import TrialFailure

if TYPE_CHECKING:
    from .arguments import Braces
    from .metrics import Collector

CSV_FILE: Final = "file"  # among `reports`
_STEPS: Final = ("step", "epoch", "iteration", "round")  # columns of the step, the best first
_MAX_BYTES: Final = 1 << 26


def place_of(text: str, braces: Braces, environment: Mapping[str, str], folder: str) -> Path:
    """The CSV file of a trial.

    Args:
        text: with braces as in an argument, and variables such as `$AUTOML_CHECKPOINT_DIR`.
        braces: what they stand for.
        environment: of the command; only variables that begin with AUTOML_ are replaced.
        folder: the working directory of the command.

    Raises:
        TrialFailure: the text holds a parameter that is inactive or None.
    """
    filled = braces.replaced(text)
    if filled is None:
        raise TrialFailure("missing_metric", f"`reports` names no place: {text!r}")
    known = {name: value for name, value in environment.items() if name.startswith("AUTOML_")}
    return Path(folder, string.Template(filled).safe_substitute(known))


class CsvFile:
    """Reports the rows that a command appends to a CSV file, or writes it anew with.

    The first line names the columns. An empty cell is no metric. Without a column of the step rows
    are counted from 1. A file that the command has not touched is of an earlier run.

    Args:
        path: it need not exist yet.
        collector: gets the reports.
    """

    def __init__(self, path: Path, collector: Collector) -> None:
        self._path = path
        self._collector = collector
        self._seen = self._state()
        self._reported = 0  # rows

    def _state(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size

    def read(self, *, last: bool = False) -> None:
        """Report what is new.

        Args:
            last: the command has ended: a line without an end counts too.
        """
        state = self._state()
        if state is None or (state == self._seen and not (last and self._reported)):
            return
        self._seen = state
        try:
            with self._path.open(encoding="utf-8", errors="replace", newline="") as file:
                text = file.read(_MAX_BYTES)
        except OSError:  # the command replaces it
            return
        lines = text.splitlines(keepends=True)
        if lines and not last and not lines[-1].endswith("\n"):
            lines.pop()
        rows = list(csv.DictReader(lines))
        self._reported = 0 if len(rows) < self._reported else self._reported
        for number, row in enumerate(rows[self._reported :], self._reported + 1):
            self._report(number, row)
        self._reported = len(rows)

    def _report(self, number: int, row: dict[str, str]) -> None:
        cells = {name.strip(): text.strip() for name, text in row.items() if name and text}
        column = next((name for name in _STEPS if name in cells), None)
        step = _number(cells[column]) if column else number
        found = {name: _number(text) for name, text in cells.items() if text and name != column}
        metrics = {name: value for name, value in found.items() if value is not None}
        if metrics:
            self._collector.report(step, metrics, f"{self._path}, row {number}")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
