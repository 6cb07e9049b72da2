"""The resources of a worker slot."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from automl.errors import UsageError
from search_spaces.hardware import count_cpus, detect
from workers.runtime.devices import named_gpus

from .arguments import finite, shown, whole

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
            gpus = len(detect().gpus)
            named = named_gpus()  # it may have changed since `detect`
            gpus = gpus if named is None else min(gpus, len(named))
            slots = min(slots, int(gpus / self.gpus))
        return max(1, slots)


def read_resources(resources: Resources | Mapping[str, Any] | None) -> Resources:
    """Parse the resources of a slot; raises UsageError if they are malformed."""
    if isinstance(resources, Resources):
        return resources
    if not isinstance(resources, Mapping | None):
        raise UsageError(
            f"resources must map cpus, gpus and memory to numbers, got {shown(resources)}"
        )
    given = dict(resources or {})
    if unknown := [key for key in given if key not in vars(Resources())]:
        raise UsageError(f"resources are cpus, gpus and memory, got {shown(unknown[0])}")
    cpus = whole("cpus of a slot", given.get("cpus", 1), least=1)
    if cpus > MAX_SLOTS:
        raise UsageError(f"a slot has at most {MAX_SLOTS} CPUs, got {cpus}")
    gpus = finite("gpus of a slot", given.get("gpus", 0.0))
    memory = given.get("memory")
    if gpus < 0:
        raise UsageError(f"gpus of a slot must not be negative, got {gpus:g}")
    if memory is not None:
        memory = whole("memory of a slot (bytes)", memory, least=1)
    return Resources(cpus, gpus, memory)
