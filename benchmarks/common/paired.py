"""Time several contestants in turn, so that other work on the machine slows all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

Timed = Callable[[], float]


class CpuTime:
    """Replaces `time` in a trainer: CPU seconds of this process in place of wall seconds."""

    monotonic = staticmethod(time.monotonic)
    perf_counter = staticmethod(time.process_time)


@contextmanager
def cpu_clock(*modules: ModuleType) -> Iterator[None]:
    """Make these modules read CPU seconds in place of wall seconds."""
    before: list[tuple[Any, Any]] = [(module, module.time) for module in modules]
    for module in modules:
        module.time = CpuTime  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module, clock in before:
            module.time = clock


def interleaved(
    contestants: Mapping[str, Timed], rounds: int, first: int = 0
) -> dict[str, list[float]]:
    """Seconds of each contestant in each round; every second round runs in reverse order.

    Args:
        contestants: functions that return their seconds, by name.
        rounds: how many rounds to run.
        first: the number of earlier rounds.
    """
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(first, first + rounds):
        names = list(contestants) if number % 2 == 0 else list(reversed(contestants))
        for name in names:
            taken[name].append(contestants[name]())
    return taken


def ratios(taken: Mapping[str, list[float]], base: str) -> dict[str, float]:
    """Median over the rounds of each contestant's seconds divided by those of `base`."""
    return {
        name: statistics.median(a / b for a, b in zip(seconds, taken[base], strict=True))
        for name, seconds in taken.items()
    }
