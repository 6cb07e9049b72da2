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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from search_spaces.errors import TrialFailure, UsageError
from search_spaces.validation import number_of
from workers.files import Folder
from workers.functions.numbers import numbers_of

from .printed_metrics import COLOURS, STEPS, TYPE, VALUE

CSV_FILE: Final = "file"  # among `reports`
STEP: Final = "step"
NUM_COMPLAINTS: Final = 10  # about reports that cannot be read, in the log of a trial
MAX_BYTES: Final = 1 << 20  # of a line of JSON, and of what is read at a time
LINE_BYTES: Final = 10_000  # of a line in which patterns are searched; the rest of it is ignored
_CSV_STEPS: Final = ("step", "epoch", "iteration", "round")  # columns of the step, the best first
_AROUND: Final = ",;:)]}'\""  # after a number in a sentence or a list
_THOUSANDS: Final = re.compile(r"[-+]?[1-9]\d{0,2}(?:[,_]\d{3})+(?:\.\d*)?")


@dataclass
class Collector:
    """Sends the reports of a command and keeps its result.

    A report that cannot be read is described in the trial's log and left out.

    Args:
        send: sends metrics at a step.
        say: writes a line to the trial's log.
        result: the metrics of the last result.
        metrics: names of all metrics so far.
        complaints: the reports that could not be read.
    """

    send: Callable[[int, Mapping[str, float]], object]
    say: Callable[[str], object]
    result: dict[str, float] = field(default_factory=dict)
    metrics: set[str] = field(default_factory=set)
    complaints: list[str] = field(default_factory=list)

    def report(self, step: Any, metrics: Mapping[str, Any], source: str) -> None:
        """Send metrics at a step.

        Args:
            step: a whole number.
            metrics: by name; None counts as NaN, which some languages cannot write.
            source: where the report comes from, for messages.
        """
        if type(step) not in (int, float) or step % 1 or not -(2**63) <= step < 2**63:
            self.complain(f"{source}: a step is a whole number, got {reprlib.repr(step)}")
        elif numbers := self._numbers(metrics, source):
            self.send(int(step), numbers)

    def finish(self, metrics: Mapping[str, Any], source: str) -> None:
        """Keep metrics as the result of the command."""
        self.result |= self._numbers(metrics, source)

    def complain(self, words: str) -> None:
        """Note a report that cannot be read."""
        self.complaints.append(words)
        if len(self.complaints) <= NUM_COMPLAINTS:
            self.say(f"{words}; it is left out")

    def _numbers(self, metrics: Mapping[str, Any], source: str) -> dict[str, float]:
        """The metrics as numbers; without those that are none, about which it complains."""
        found: dict[str, float] = {}
        for name, value in metrics.items():
            try:
                found |= numbers_of({name: math.nan if value is None else value})
            except TrialFailure as error:
                self.complain(f"{source}: {error}")
        self.metrics |= found.keys()
        return found


@dataclass
class Lines:
    """Splits a stream of bytes into lines, each cut to at most `most` bytes.

    Attributes:
        rest: what follows the last line.
    """

    most: int = LINE_BYTES
    rest: bytes = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that end in the next bytes of the stream; a carriage return ends one too."""
        *lines, rest = (self.rest + chunk.replace(b"\r", b"\n")).split(b"\n")
        self.rest = rest[: self.most]
        return [line[: self.most] for line in lines]


class PatternReports:
    """Searches every line of an output for the metrics, and reports them by step.

    A report is sent once each metric was found since the last one, or if the next step begins. The
    step of a metric is in its line or before. Without a pattern for it, or if `may_count` and no
    step comes before the first metric, each match of the goal's metric is a step.

    Args:
        patterns: regular expressions by metric, with one group each; `step` is that of the step.
        goal: the metric whose matches are counted if there is no pattern for the step.
        collector: gets the reports.
        may_count: whether there may be no steps to find.

    Raises:
        UsageError: an expression is wrong.
    """

    def __init__(
        self,
        patterns: Mapping[str, str],
        goal: str,
        collector: Collector,
        *,
        may_count: bool = False,
    ) -> None:
        self._metrics = {name: compile_pattern(name, text) for name, text in patterns.items()}
        self._steps = self._metrics.pop(STEP, None)
        self._goal = goal if goal in self._metrics else next(iter(self._metrics), "")
        self._collector = collector
        self._step: float | None = None if self._steps else 0
        self._may_count = may_count
        self._found: dict[str, float] = {}
        self._lines: defaultdict[str, Lines] = defaultdict(Lines)  # by stream

    def feed(self, chunk: bytes, stream: str = "stdout") -> None:
        """Take in the next bytes of a stream of the output."""
        for line in self._lines[stream].feed(re.sub(COLOURS.encode(), b"", chunk)):
            self._search(line)

    def close(self) -> None:
        """The output has ended: report what was found since the last report."""
        for lines in self._lines.values():
            self._search(lines.rest)
        if self._step is None or (self._steps is None and self._goal not in self._found):
            self._collector.finish(self._found, "the output")
        else:
            self._send()

    def _search(self, line: bytes) -> None:
        step = self._number(STEP, self._steps, line)
        if step not in (None, self._step):
            if self._step is not None:
                self._send()
            self._step = step
        for name, pattern in self._metrics.items():
            if (value := self._number(name, pattern, line)) is not None:
                self._found[name] = value
        if self._may_count and self._step is None and self._found:
            self._steps, self._step = None, 0
        needed = {self._goal} if self._steps is None else self._metrics.keys()
        if self._step is not None and needed <= self._found.keys():
            self._send()

    def _number(self, name: str, pattern: Any, line: bytes) -> float | None:
        """The number that a pattern finds, such as 0.5 or 1,000.5; None if there is none."""
        found = None if pattern is None else pattern.search(line)
        if found is None:
            return None
        text = (found[1] or b"").decode(errors="replace").strip().rstrip(_AROUND)
        number = number_of(re.sub("[,_]", "", text) if _THOUSANDS.fullmatch(text) else text)
        if number is None:
            self._collector.complain(f"the pattern of {name} finds a number, got {text!r:.100}")
        return number

    def _send(self) -> None:
        if self._found:
            if self._steps is None:
                self._step = (self._step or 0) + 1
            self._collector.report(self._step, self._found, "the output")
            self._found = {}


def usual_patterns(goals: Iterable[str]) -> dict[str, str]:
    """Expressions for lines such as `epoch 3 loss 0.5`, `loss=0.5`, `loss: 0.5`, and JSON lines.

    Letters may be small or capital. "loss" is not the end of another name, such as "train loss".
    """
    found = {
        name: rf"(?:^|[\d]|[^\w\s'\"])[\s'\"]*(?i:{re.escape(name)})[\s:='\"]+(?:{TYPE})?{VALUE}"
        for name in goals
    }
    return {**found, STEP: rf"(?i)(?:^|[^\w])(?:{'|'.join(STEPS)})\W+(\d+)"}


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


class CsvRows:
    """Reports the rows that a command appends to a CSV file, such as that of Lightning's CSVLogger.

    The first line names the columns. A cell that is no number is no metric. Without a column of the
    step rows are counted from 1. A file that the command has not touched is of an earlier run.

    Args:
        path: it need not exist yet.
        collector: gets the reports.
    """

    def __init__(self, path: Path, collector: Collector) -> None:
        self._path = path
        self._collector = collector
        self._before = self._seen = self._state()
        self._num_reported = 0

    def _state(self) -> tuple[int, int] | None:
        found = self._path.stat() if self._path.is_file() else None
        return (found.st_mtime_ns, found.st_size) if found else None

    def read(self, *, last: bool = False) -> None:
        """Report what is new; `last` if the command has ended: a line without an end counts too."""
        with suppress(OSError):  # the command replaces it
            state = self._state()
            if state in (None, self._before) or (state == self._seen and not last):
                return
            self._seen = state
            lines = self._path.read_text("utf-8", "replace").splitlines(keepends=True)
            rows = list(csv.DictReader(one for one in lines if last or one.endswith("\n")))
            for number, row in enumerate(rows[self._num_reported :], self._num_reported + 1):
                found = {name: number_of(text) for name, text in row.items() if name and text}
                metrics = {name.strip(): one for name, one in found.items() if one is not None}
                step = next((metrics.pop(name) for name in _CSV_STEPS if name in metrics), number)
                if metrics:
                    self._collector.report(step, metrics, f"{self._path}, row {number}")
            self._num_reported = len(rows)


class Reports:
    """Reads the reports of a command from wherever it makes them.

    Few lines of output name a goal by chance, but a command that writes to the file has said what
    counts. So the usual lines of output count only as long as the file is empty, and if there are
    neither patterns nor a CSV file.

    Args:
        collector: gets the reports.
        folder, name: of the file of JSON lines, which the command makes.
        patterns, goal: see `PatternReports`.
        goals: the metrics in usual lines.
        table: a CSV file of metrics; None if there is none.
    """

    def __init__(
        self,
        collector: Collector,
        folder: Folder,
        name: str,
        patterns: Mapping[str, str],
        goal: str,
        goals: Iterable[str],
        table: Path | None,
    ) -> None:
        self._collector = collector
        self._folder = folder
        self._name = name
        self._num_bytes = self._num_lines = 0  # that were read
        self._lines = Lines(MAX_BYTES)
        self._is_usual = not patterns and table is None
        self._patterns: PatternReports | None = PatternReports(
            usual_patterns(goals) if self._is_usual else patterns,
            goal,
            collector,
            may_count=self._is_usual,
        )
        self._waiting: list[tuple[bytes, str]] = []  # output to search at the next look
        self._table = CsvRows(table, collector) if table is not None else None

    def feed(self, chunk: bytes, stream: str) -> None:
        """Take in the next bytes of "stdout" or "stderr"."""
        self._waiting.append((chunk, stream))

    def look(self, *, last: bool = False) -> None:
        """Read what is new, of the file at most a megabyte; all of it if the command has ended."""
        while self._read_file() and last:
            pass
        if last:
            self._take(self._lines.rest)
        for chunk, stream in self._waiting if self._patterns else ():
            self._patterns.feed(chunk, stream)  # type: ignore[union-attr]
        self._waiting = []
        if last and self._patterns:
            self._patterns.close()
        if self._table is not None:
            self._table.read(last=last)

    def _read_file(self) -> bool:
        """Read on in the file; returns whether there was more."""
        chunk = b""
        with suppress(FileNotFoundError), self._folder.file(self._name).open("rb") as file:
            file.seek(self._num_bytes)
            chunk = file.read(MAX_BYTES)
        self._num_bytes += len(chunk)
        for line in self._lines.feed(chunk):
            self._take(line)
        return bool(chunk)

    def _take(self, line: bytes) -> None:
        self._num_lines += 1
        if not line.strip():
            return
        self._patterns = None if self._is_usual else self._patterns
        source = f"AUTOML_REPORTS, line {self._num_lines}"
        found = None
        with suppress(ValueError, RecursionError):
            found = json.loads(line)
        if not isinstance(found, dict):
            self._collector.complain(f"{source} is no JSON object: {reprlib.repr(line)}")
        elif STEP in found:
            self._collector.report(found.pop(STEP), found, source)
        else:
            self._collector.finish(found, source)
