"""Timing several things in turn, so that whatever else the machine does hits all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

Timed = Callable[[], float]


class CpuTime:
    """Stands in for `time` where a trainer reads it: seconds that this process computed, not those of the wall."""

    monotonic = staticmethod(time.monotonic)
    perf_counter = staticmethod(time.process_time)


@contextmanager
def cpu_clock(*modules: ModuleType) -> Iterator[None]:
    """Let these modules read CPU seconds where they would read the wall's."""
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
    """What each took in each round; the order is turned round from one round to the next.

    Args:
        first: rounds that there were before.
    """
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(first, first + rounds):
        names = list(contestants) if number % 2 == 0 else list(reversed(contestants))
        for name in names:
            taken[name].append(contestants[name]())
    return taken


def ratios(taken: Mapping[str, list[float]], base: str) -> dict[str, float]:
    """Median over the rounds of what each took by what `base` took in the same round."""
    return {
        name: statistics.median(a / b for a, b in zip(seconds, taken[base], strict=True))
        for name, seconds in taken.items()
    }
