"""Reads what a command reports: JSON lines in a file, lines of its output, rows of a CSV file.

The regular expressions come from a configuration, which is not trusted: RE2 searches in a time that
is linear in the length of a line, whatever the expression is.
"""

import csv
import json
import math
import re
import reprlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from search_spaces.errors import TrialFailure, UsageError
from search_spaces.values import number_of
from workers.files import Folder
from workers.functions.numbers import numbers_of

from .goal_proposals import BEFORE, COLOURS, STEPS, VALUE

CSV_FILE: Final = "file"  # among `reports`
STEP: Final = "step"
REPORTS: Final = "reports.jsonl"
NUM_COMPLAINTS: Final = 10  # about reports that cannot be read, in the log of a trial
JSON_BYTES: Final = 1 << 20  # of a line of JSON
LINE_BYTES: Final = 10_000  # of a line in which patterns are searched; the rest of it is ignored
_CSV_STEPS: Final = ("step", "epoch", "iteration", "round")  # columns of the step, the best first
_AROUND: Final = ",;:)]}'\""  # after a number in a sentence or a list
_THOUSANDS: Final = re.compile(r"[-+]?[1-9]\d{0,2}(?:[,_]\d{3})+(?:\.\d*)?")


class Reports:
    """Reads the reports of a command from wherever it makes them, and keeps its result.

    - A file of JSON lines; one without a step is the result.
    - Lines of output. A report is sent once each metric was found since the last one, or if the
      next step begins. The step of a metric is in its line or before. Without a pattern for it,
      each match of the goal's metric is a step. Few lines name a goal by chance, but a command that
      writes to the file has said what counts: so usual lines (`usual_patterns`) count only as long
      as the file is empty, and if there are neither patterns nor a CSV file.
    - A CSV file, such as that of Lightning's CSVLogger, whose first line names the columns. A cell
      that is no number is no metric. Without a column of the step rows are counted from 1. A file
      that the command has not touched is of an earlier run.

    A report that cannot be read is described in the trial's log and left out.

    Args:
        send: sends metrics at a step.
        say: writes a line to the trial's log.
        files: the folder in which the command makes the file `REPORTS`.
        patterns: regular expressions by metric, with one group each; `step` is that of the step.
        goal: the metric whose matches are counted if there is no pattern for the step.
        goals: the metrics in usual lines.
        table: the CSV file, which need not exist yet; None if there is none.

    Attributes:
        result: the metrics of the last result.
        metrics: names of all metrics so far.
        complaints: the first reports that could not be read.

    Raises:
        UsageError: an expression is wrong.
    """

    def __init__(
        self,
        send: Callable[[int, Mapping[str, float]], object],
        say: Callable[[str], object],
        files: Folder,
        patterns: Mapping[str, str],
        goal: str = "",
        goals: Iterable[str] = (),
        table: Path | None = None,
    ) -> None:
        self.result: dict[str, float] = {}
        self.metrics: set[str] = set()
        self.complaints: list[str] = []
        self._send, self._say, self._files, self._table = send, say, files, table
        self._is_usual = not patterns and table is None
        searched = usual_patterns(goals) if self._is_usual else patterns
        self._patterns = {name: compile_pattern(name, text) for name, text in searched.items()}
        self._steps = self._patterns.pop(STEP, None)
        self._goal = goal if goal in self._patterns else next(iter(self._patterns), "")
        self._step: float | None = None if self._steps else 0
        self._found: dict[str, float] = {}  # in lines of output since the last report
        self._output: list[tuple[str, bytes]] = []  # to be searched at the next look
        self._rests: defaultdict[str, bytes] = defaultdict(bytes)  # after the last line of each
        self._num_bytes = self._num_lines = self._num_rows = 0  # that were read
        self._table_before = self._table_seen = self._table_state()

    def feed(self, chunk: bytes, stream: str) -> None:
        """Take in the next bytes of "stdout" or "stderr"."""
        self._output.append((stream, chunk))

    def look(self, *, last: bool = False) -> None:
        """Read what is new; `last` if the command has ended: lines without an end count too."""
        with suppress(FileNotFoundError), self._files.file(REPORTS).open("rb") as file:
            file.seek(self._num_bytes)
            chunk = file.read()
            self._num_bytes += len(chunk)
            for line in self._lines(REPORTS, chunk, JSON_BYTES):
                self._take(line)
        if last:
            self._take(self._rests.pop(REPORTS, b""))
        for stream, chunk in self._output:
            for line in self._lines(stream, re.sub(COLOURS.encode(), b"", chunk), LINE_BYTES):
                self._search(line)
        self._output = []
        if last:
            for rest in self._rests.values():
                self._search(rest)
            is_step = self._steps is not None or self._goal in self._found
            self._report_found(is_step=is_step and self._step is not None)
        if self._table is not None:
            self._read_rows(self._table, last)

    def _lines(self, stream: str, chunk: bytes, most: int) -> list[bytes]:
        """The lines that end in the next bytes of a stream, each cut; `\\r` ends one too."""
        *lines, rest = (self._rests[stream] + chunk.replace(b"\r", b"\n")).split(b"\n")
        self._rests[stream] = rest[:most]
        return [line[:most] for line in lines]

    def _take(self, line: bytes) -> None:
        """Take in a line of the file."""
        self._num_lines += 1
        if not line.strip():
            return
        if self._is_usual:
            self._patterns, self._steps, self._found = {}, None, {}
        source, found = f"AUTOML_REPORTS, line {self._num_lines}", None
        with suppress(ValueError, RecursionError):
            found = json.loads(line)
        if isinstance(found, dict):
            self.report(found, source)
        else:
            self._complain(f"{source} is no JSON object: {reprlib.repr(line)}")

    def _search(self, line: bytes) -> None:
        """Search a line of output."""
        step = self._number(STEP, self._steps, line)
        if step not in (None, self._step):
            if self._step is not None:
                self._report_found()
            self._step = step
        for name, pattern in self._patterns.items():
            if (value := self._number(name, pattern, line)) is not None:
                self._found[name] = value
        if self._is_usual and self._step is None and self._found:  # no step comes before a metric
            self._steps, self._step = None, 0
        needed = {self._goal} if self._steps is None else self._patterns.keys()
        if self._step is not None and needed <= self._found.keys():
            self._report_found()

    def _number(self, name: str, pattern: Any, line: bytes) -> float | None:
        """The number that a pattern finds, such as 0.5 or 1,000.5; None if there is none."""
        found = None if pattern is None else pattern.search(line)
        if found is None:
            return None
        text = (found[1] or b"").decode(errors="replace").strip().rstrip(_AROUND)
        number = number_of(re.sub("[,_]", "", text) if _THOUSANDS.fullmatch(text) else text)
        if number is None:
            self._complain(f"the pattern of {name} finds a number, got {text!r:.100}")
        return number

    def _report_found(self, *, is_step: bool = True) -> None:
        """Report what was found in lines of output, as that of a step or as the result."""
        if self._found and is_step and self._steps is None:
            self._step = (self._step or 0) + 1
        self.report({**self._found, **({STEP: self._step} if is_step else {})}, "the output")
        self._found = {}

    def _table_state(self) -> tuple[int, int] | None:
        found = self._table.stat() if self._table and self._table.is_file() else None
        return (found.st_mtime_ns, found.st_size) if found else None

    def _read_rows(self, table: Path, last: bool) -> None:
        """Report the new rows of the CSV file."""
        with suppress(OSError):  # the command replaces it
            state = self._table_state()
            if state in (None, self._table_before) or (state == self._table_seen and not last):
                return
            self._table_seen = state
            lines = table.read_text("utf-8", "replace").splitlines(keepends=True)
            rows = list(csv.DictReader(one for one in lines if last or one.endswith("\n")))
            for number, row in enumerate(rows[self._num_rows :], self._num_rows + 1):
                found = {name: number_of(text) for name, text in row.items() if name and text}
                metrics = {name.strip(): one for name, one in found.items() if one is not None}
                step = next((metrics.pop(name) for name in _CSV_STEPS if name in metrics), number)
                self.report({**metrics, STEP: step}, f"{table}, row {number}")
            self._num_rows = len(rows)

    def report(self, said: Mapping[str, Any], source: str) -> None:
        """Send metrics at the step that is among them; without a step they are the result.

        Args:
            said: by name; None counts as NaN, which some languages cannot write.
            source: where the report comes from, for messages.
        """
        step, found = said.get(STEP, 0), dict[str, float]()
        if type(step) not in (int, float) or step % 1 or not -(2**63) <= step < 2**63:
            self._complain(f"{source}: a step is a whole number, got {reprlib.repr(step)}")
            return
        for name, value in said.items():
            try:
                found |= numbers_of({name: math.nan if value is None else value})
            except TrialFailure as error:
                self._complain(f"{source}: {error}")
        is_step = found.pop(STEP, None) is not None
        self.metrics |= found.keys()
        if not is_step:
            self.result |= found
        elif found:
            self._send(int(step), found)

    def _complain(self, words: str) -> None:
        if len(self.complaints) < NUM_COMPLAINTS:
            self.complaints.append(words)
            self._say(f"{words}; it is left out")


def usual_patterns(goals: Iterable[str]) -> dict[str, str]:
    """Expressions for lines such as `epoch 3 loss 0.5`, `loss=0.5`, `loss: 0.5`, and JSON lines.

    Letters may be small or capital. "loss" is not the end of another name, such as "train loss".
    """
    return {
        **{name: f"{BEFORE}(?i:{re.escape(name)}){VALUE}" for name in goals},
        STEP: rf"(?i)(?:^|[^\w])(?:{'|'.join(STEPS)})\W+(\d+)",
    }


def compile_pattern(name: str, text: str) -> Any:
    """The compiled expression of a metric.

    Raises:
        UsageError: it is not an expression of RE2, is too large, or does not have one group.
    """
    import re2  # takes longer than all else here, and `status` needs none

    options = re2.Options()
    options.log_errors = False
    options.encoding = re2.Options.Encoding.LATIN1  # output may be any bytes
    try:
        compiled = re2.compile(text.encode(), options)
    except re2.error as error:
        raise UsageError(
            f"the pattern of {name} is no regular expression of RE2, which has no references or "
            f"look-around: {b''.join(error.args).decode(errors='replace')}, got {text!r:.200}"
        ) from error
    if compiled.groups != 1:
        raise UsageError(
            f"the pattern of {name} has one group, which is the number, such as 'loss (\\S+)'; "
            f"got {compiled.groups} groups in {text!r:.200}"
        )
    return compiled
