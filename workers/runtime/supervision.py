"""Whether an attempt still moves, from the signs of life of its ranks."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from workers.protocol import Pulse

SHORTEST: Final = 300.0  # seconds: what is slow once, such as an evaluation or compiling for a new shape, is no hang
PATIENCE: Final = 20.0  # times the longest pause between two steps so far


class Progress:
    """Counts steps of each rank and the time since the last of any.

    Ranks wait for each other, so that one which hangs soon stops all, and rank 0 may evaluate for long while the others
    wait: an attempt hangs when no rank moves. Once it has moved, a pause of 20 times the longest so far (and at least
    five minutes) is enough to say so, before the limit is reached.

    Args:
        limit: seconds without a step after which the attempt hangs in any case; None for never.
        awaited: ranks whose worker may still be starting. Until each has given a sign of life, the limit is at least
            five minutes: a slow start says nothing about the configuration.
    """

    def __init__(self, limit: float | None, awaited: Iterable[int] = ()) -> None:
        self._limit = limit
        self._awaited = set(awaited)
        self._moved = time.monotonic()
        self._longest: float | None = None  # pause between two steps
        self._steps: dict[int, int] = {}

    def note(self, rank: int, pulse: Pulse) -> None:
        """Take in a sign of life."""
        self._awaited.discard(rank)
        moved = time.monotonic() - pulse.quiet
        if pulse.steps > self._steps.get(rank, 0):
            if self._steps.get(rank):  # what comes before the first step is preparation
                self._longest = max(self._longest or 0.0, moved - self._moved)
            self._steps[rank] = pulse.steps
        self._moved = max(self._moved, moved)

    def ended(self, rank: int) -> None:
        """A rank has ended: the others are to follow."""
        self._awaited.discard(rank)
        self._moved = max(self._moved, time.monotonic())
        self._steps.pop(rank, None)

    @property
    def patience(self) -> float | None:
        """Seconds without a step that are still waited for."""
        if self._limit is not None and self._awaited:
            return max(self._limit, SHORTEST)
        if self._limit is None or self._longest is None:
            return self._limit
        return min(self._limit, max(SHORTEST, PATIENCE * self._longest))

    @property
    def hangs(self) -> bool:
        """Whether no rank has moved for too long."""
        patience = self.patience
        return patience is not None and time.monotonic() - self._moved > patience

    def message(self) -> str:
        """What is known, for a person; names the ranks that are behind."""
        text = f"no step or report for {time.monotonic() - self._moved:.0f} s"
        furthest = max(self._steps.values(), default=0)
        behind = [f"rank {rank}" for rank, steps in sorted(self._steps.items()) if steps < furthest]
        return text + (f"; {' and '.join(behind)} stopped before the others" if behind else "")
