"""Metrics: those of the controller, and a guess about a metric that nobody has declared."""

from collections.abc import Iterable
from typing import Final

from workers.protocol import Metric

SECONDS: Final = Metric("seconds", "minimize", "speed")
PEAK_MEMORY: Final = Metric("peak_memory_bytes", "minimize", "memory")
ESTIMATED_MEMORY: Final = Metric("estimated_memory_bytes", "minimize", "memory")
CONTROLLER_METRICS: Final = (SECONDS, PEAK_MEMORY, ESTIMATED_MEMORY)
_SPEED_WORDS: Final = ("second", "latency", "throughput", "step_time", "duration")


def declared(name: str, metrics: Iterable[Metric]) -> Metric | None:
    """The declaration of a metric, by the workload or the controller; None if there is none."""
    return next((m for m in (*metrics, *CONTROLLER_METRICS) if m.name == name), None)


def guessed_aspects(name: str) -> frozenset[str]:
    """The aspects of a metric that is not declared, guessed from its name.

    This is the only place that guesses. It is used for objectives of the user's own; the report
    says so. A time to reach a quality, such as `seconds_to_target`, depends on quality and speed.
    """
    if "memory" in name or "bytes" in name:
        return frozenset({"memory"})
    if "time_to_" in name or "seconds_to_" in name:
        return frozenset({"quality", "speed"})
    return frozenset({"speed" if any(word in name for word in _SPEED_WORDS) else "quality"})
