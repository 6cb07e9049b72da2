"""Supervises attempts: whether ranks hang, and whether the kernel killed one for memory."""

import re
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from workers.protocol import Heartbeat

# A single slow step, such as an evaluation or compilation for a new shape, is not a hang.
MIN_TIMEOUT_SECONDS: Final = 300.0
PAUSE_FACTOR: Final = 20.0  # times the longest pause between two steps so far


class HangDetector:
    """Counts the steps of each rank and the time since the last step of any rank.

    Ranks wait for each other: one rank that hangs soon stops all, and rank 0 may evaluate for a
    long time while the others wait. So an attempt hangs if no rank moves. After the first steps
    the time-out falls to 20 times the longest pause so far, but not below five minutes.

    Args:
        limit: seconds without a step after which the attempt hangs in any case; None for no limit.
        awaited: ranks whose worker may still be starting. Until each has sent a heartbeat, the
            time-out is at least five minutes, because a slow start is not the trial's fault.
    """

    def __init__(self, limit: float | None, awaited: Iterable[int] = ()) -> None:
        self._limit = limit
        self._awaited = set(awaited)
        self._moved = time.monotonic()
        self._longest: float | None = None  # pause between two steps
        self._steps: dict[int, int] = {}

    def record(self, rank: int, heartbeat: Heartbeat) -> None:
        """Take in a heartbeat of a rank."""
        self._awaited.discard(rank)
        moved = time.monotonic() - heartbeat.idle_seconds
        if heartbeat.steps > self._steps.get(rank, 0):
            if self._steps.get(rank):  # the time before the first step is preparation
                self._longest = max(self._longest or 0.0, moved - self._moved)
            self._steps[rank] = heartbeat.steps
        self._moved = max(self._moved, moved)

    def ended(self, rank: int) -> None:
        """A rank has ended; the others have the full time-out to follow."""
        self._awaited.discard(rank)
        self._moved = max(self._moved, time.monotonic())
        self._steps.pop(rank, None)

    @property
    def timeout(self) -> float | None:
        """Seconds without a step after which the attempt hangs; None for no limit."""
        if self._limit is not None and self._awaited:
            return max(self._limit, MIN_TIMEOUT_SECONDS)
        if self._limit is None or self._longest is None:
            return self._limit
        return min(self._limit, max(MIN_TIMEOUT_SECONDS, PAUSE_FACTOR * self._longest))

    @property
    def hangs(self) -> bool:
        """Whether no rank has moved within the time-out."""
        timeout = self.timeout
        return timeout is not None and time.monotonic() - self._moved > timeout

    def message(self) -> str:
        """Describes the hang to a person; names the ranks that are behind."""
        text = f"no step or report for {time.monotonic() - self._moved:.0f} s"
        furthest = max(self._steps.values(), default=0)
        behind = [f"rank {rank}" for rank, steps in sorted(self._steps.items()) if steps < furthest]
        return text + (f"; {' and '.join(behind)} stopped before the others" if behind else "")


def oom_kills() -> int:
    """How many processes the kernel has killed for memory since boot; 0 if it does not say."""
    try:
        found = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def signal_name(number: int) -> str:
    """The name of a signal, such as SIGKILL."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
