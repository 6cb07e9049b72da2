"""The resources of a worker slot."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from automl.errors import UsageError
from search_spaces.hardware import count_cpus, detect

MAX_SLOTS: Final = 10_000  # of a sweep, and cores of a slot: more is a slip of the keyboard


@dataclass(frozen=True)
class Resources:
    """The resources of one worker slot.

    Args:
        cpus: CPU cores, which is the number of threads of a rank.
        gpus: GPUs of a rank; a fraction if several slots share one.
        memory: bytes that a rank may use; None for all memory of its device.
    """

    cpus: int = 1
    gpus: float = 0.0
    memory: int | None = None

    def local_slots(self) -> int:
        """How many such slots this machine has room for, at least 1."""
        slots = count_cpus() // max(1, self.cpus)
        if self.gpus > 0:
            slots = min(slots, int(len(detect().gpus) / self.gpus))
        return max(1, slots)


def read_resources(resources: Resources | Mapping[str, Any] | None) -> Resources:
    """Parse the resources of a slot; raises UsageError if they are malformed."""
    if isinstance(resources, Resources):
        return resources
    try:
        parsed = Resources(**(resources or {}))
    except TypeError as error:
        raise UsageError(
            f"resources are cpus, gpus and memory, got {dict(resources or {})!r}"
        ) from error
    if parsed.cpus > MAX_SLOTS:
        raise UsageError(f"a slot has at most {MAX_SLOTS} CPUs, got {parsed.cpus}")
    if parsed.cpus < 1 or parsed.gpus < 0:
        raise UsageError(f"a slot has at least 1 CPU and no negative number of GPUs, got {parsed}")
    return parsed
