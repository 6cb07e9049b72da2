"""A clock of training seconds, and the intervals and counters that are compared with it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import TracebackType


@dataclass
class Clock:
    """Sums the seconds inside `with clock:`, added to the seconds of earlier attempts.

    Args:
        previous: seconds of earlier attempts.
        spent: seconds of this attempt.
    """

    previous: float = 0.0
    spent: float = 0.0

    def __enter__(self) -> Clock:
        self._entered = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.spent += time.perf_counter() - self._entered

    @property
    def total(self) -> float:
        """Seconds of all attempts."""
        return self.previous + self.spent


@dataclass(frozen=True)
class Every:
    """An interval of training seconds or updates, whichever ends first; None for no limit."""

    seconds: float | None = None
    updates: int | None = None

    def due(self, seconds: float, updates: int = 0) -> bool:
        """Whether the interval is over after this many seconds and updates."""
        if self.seconds is not None and seconds >= self.seconds:
            return True
        return self.updates is not None and updates >= self.updates


@dataclass
class Window:
    """Sums over the updates since the last report.

    Args:
        begun: training seconds of all attempts when the window began.
        updates, items: their numbers since then; losses: sum of their mean losses.
    """

    begun: float = 0.0
    updates: int = 0
    items: float = 0.0
    losses: float = 0.0

    def count(self, items: float) -> None:
        """Count an update; its loss is added once the ranks have summed it."""
        self.updates += 1
        self.items += items

    def items_per_second(self, now: float) -> float:
        """Speed since the window began; `now` is in training seconds."""
        return self.items / max(now - self.begun, 1e-9)

    def metrics(self, now: float) -> dict[str, float]:
        """Mean loss and speed; empty before the first update."""
        if not self.updates:
            return {}
        seconds = max(now - self.begun, 1e-9)
        return {
            "train_loss": self.losses / self.updates,
            "items_per_second": self.items_per_second(now),
            "seconds_per_update": seconds / self.updates,
        }
