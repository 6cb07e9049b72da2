"""Finds metrics in the output of a command by regular expressions.

The expressions come from a configuration, which is not trusted: RE2 searches in a time that is
linear in the length of a line, whatever the expression is.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

import re2

from search_spaces.errors import UsageError

from .metrics import Collector
from .output import COLOURS, Lines
from .printed_metrics import STEPS, TYPE, VALUE

STEP: Final = "step"
SOURCE: Final = "the output"
MAX_PATTERN: Final = 1000  # characters
MAX_MEMORY: Final = 1 << 20  # bytes of a compiled expression
_AROUND: Final = b",;:)]}'\""  # after a number in a sentence or a list
_THOUSANDS: Final = re.compile(rb"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?")


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
        compiled = {name: compile_pattern(name, text) for name, text in patterns.items()}
        self._steps = compiled.pop(STEP, None)
        self._metrics = compiled
        self._goal = goal if goal in compiled else next(iter(compiled), "")
        self._collector = collector
        self._step: int | None = None if self._steps else 0
        self._may_count = may_count
        self._found: dict[str, float] = {}
        self._lines: defaultdict[str, Lines] = defaultdict(Lines)  # by stream

    def feed(self, chunk: bytes, stream: str = "stdout") -> None:
        """Take in the next bytes of a stream of the output."""
        for line in self._lines[stream].feed(re.sub(COLOURS.encode(), b"", chunk)):
            self._search(line)

    def _search(self, line: bytes) -> None:
        if self._steps is not None and (found := self._steps.search(line)):
            step = _number(found[1])
            if step is None or not step.is_integer():
                self._complain(STEP, found[1], "whole number")
            elif step != self._step:
                if self._step is not None:
                    self._send()
                self._step = int(step)
        for name, pattern in self._metrics.items():
            if found := pattern.search(line):
                value = _number(found[1])
                if value is None:
                    self._complain(name, found[1], "number")
                else:
                    self._found[name] = value
        if self._may_count and self._step is None and self._found:
            self._steps, self._step = None, 0
        if self._is_complete():
            self._send()

    def close(self) -> None:
        """The output has ended: report what was found since the last report."""
        for lines in self._lines.values():
            self._search(lines.rest())
        if not self._found:
            return
        if self._step is None or (self._steps is None and self._goal not in self._found):
            self._collector.finish(self._found, SOURCE)
        else:
            self._send()

    def _is_complete(self) -> bool:
        if self._steps is None:
            return self._goal in self._found
        return self._step is not None and len(self._found) == len(self._metrics)

    def _send(self) -> None:
        if not self._found:
            return
        if self._steps is None:
            self._step = (self._step or 0) + 1
        self._collector.report(self._step, self._found, SOURCE)
        self._found = {}

    def _complain(self, name: str, text: bytes | None, rule: str) -> None:
        shown = (text or b"").decode(errors="replace")
        self._collector.complain(f"the pattern of {name} finds a {rule}, got {shown!r:.100}")


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
    if len(text) > MAX_PATTERN:
        raise UsageError(
            f"the pattern of {name} has at most {MAX_PATTERN} characters, got {len(text):,}"
        )
    options = re2.Options()
    options.max_mem = MAX_MEMORY
    options.log_errors = False
    options.encoding = re2.Options.Encoding.LATIN1  # output may be any bytes
    try:
        compiled = re2.compile(text.encode(), options)
    except re2.error as error:
        reason = error.args[0] if error.args else "it is malformed"
        words = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        raise UsageError(
            f"the pattern of {name} is no regular expression of RE2, which has no references or "
            f"look-around: {words}, got {text!r:.200}"
        ) from error
    if compiled.groups != 1:
        raise UsageError(
            f"the pattern of {name} has one group, which is the number, such as 'loss (\\S+)'; "
            f"got {compiled.groups} groups in {text!r:.200}"
        )
    return compiled


def _number(text: bytes | None) -> float | None:
    """The number that a group has found, such as 0.5 or 1,000.5; None if it is none."""
    found = (text or b"").strip().rstrip(_AROUND)
    if _THOUSANDS.fullmatch(found):
        found = found.replace(b",", b"")
    try:
        return float(found)
    except ValueError:
        return None
