"""Collects what a command reports, from whatever source, and sends it."""

import reprlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from search_spaces.errors import TrialFailure
from workers.functions.numbers import number_of, numbers_of

NUM_COMPLAINTS: Final = 10  # about reports that cannot be read, in the log of a trial


class Collector:
    """Sends the reports of a command and keeps its result.

    A report that cannot be read is described in the trial's log and left out.

    Args:
        send: sends metrics at a step.
        say: writes a line to the trial's log.

    Attributes:
        result: the metrics of the last result.
        metrics: names of all metrics so far.
        complaint: the first report that could not be read; "" if all could.
    """

    def __init__(
        self, send: Callable[[int, Mapping[str, float]], object], say: Callable[[str], object]
    ) -> None:
        self._send = send
        self._say = say
        self._num_complaints = 0
        self.result: dict[str, float] = {}
        self.metrics: set[str] = set()
        self.complaint = ""

    def report(self, step: Any, metrics: Mapping[str, Any], source: str) -> None:
        """Send metrics at a step.

        Args:
            step: a whole number.
            metrics: by name; None counts as NaN, which some languages cannot write.
            source: where the report comes from, for messages.
        """
        whole = _whole(step)
        if whole is None:
            self.complain(f"{source}: a step is a whole number, got {reprlib.repr(step)}")
            return
        numbers = self._numbers(metrics, source)
        if numbers:
            self.metrics |= numbers.keys()
            self._send(whole, numbers)

    def finish(self, metrics: Mapping[str, Any], source: str) -> None:
        """Keep metrics as the result of the command."""
        numbers = self._numbers(metrics, source)
        self.metrics |= numbers.keys()
        self.result |= numbers

    def complain(self, words: str) -> None:
        """Note a report that cannot be read."""
        self.complaint = self.complaint or words
        self._num_complaints += 1
        if self._num_complaints <= NUM_COMPLAINTS:
            self._say(f"{words}; it is left out")

    def _numbers(self, metrics: Mapping[str, Any], source: str) -> dict[str, float]:
        """The metrics as numbers; without those that are none, about which it complains."""
        found = {}
        for name, value in metrics.items():
            try:
                found[name] = float("nan") if value is None else number_of(value)
            except (TypeError, ValueError, OverflowError):
                self.complain(f"{source}: {name} is a number, got {reprlib.repr(value)}")
        try:
            return numbers_of(found)
        except TrialFailure as error:  # too many, or too long a name
            self.complain(f"{source}: {error}")
            return {}


def _whole(step: Any) -> int | None:
    """A step as an integer of 64 bits; None if it is none."""
    if isinstance(step, float) and step.is_integer():
        step = int(step)
    if isinstance(step, bool) or not isinstance(step, int) or not -(2**63) <= step < 2**63:
        return None
    return step
