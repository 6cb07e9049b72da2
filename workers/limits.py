"""When training ends or evaluates by itself: a clock of training seconds, and the counters it is compared with."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import TracebackType


class Clock:
    """Seconds spent inside `with clock:`, on top of what earlier attempts spent."""

    def __init__(self, previous: float = 0.0) -> None:
        self.previous, self._spent, self._entered = previous, 0.0, 0.0

    def __enter__(self) -> Clock:
        self._entered = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._spent += time.perf_counter() - self._entered

    @property
    def spent(self) -> float:
        """Seconds of this attempt."""
        return self._spent

    @property
    def total(self) -> float:
        """Seconds of all attempts."""
        return self.previous + self._spent


@dataclass
class Every:
    """Something due every so many training seconds or updates, whichever comes first; None for never.

    The first is due after one whole interval from `mark`.
    """

    seconds: float | None = None
    updates: int | None = None
    _seconds_mark: float = 0.0
    _updates_mark: int = 0

    def mark(self, seconds: float, updates: int) -> None:
        """Count the interval from here."""
        self._seconds_mark, self._updates_mark = seconds, updates

    def due(self, seconds: float, updates: int) -> bool:
        """Whether an interval has passed."""
        if self.seconds is not None and seconds - self._seconds_mark >= self.seconds:
            return True
        return self.updates is not None and updates - self._updates_mark >= self.updates
