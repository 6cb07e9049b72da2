"""The resources of a worker slot."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from automl.errors import UsageError
from search_spaces.hardware import count_cpus, detect, may_have_gpus
from workers.runtime.devices import named_gpus, slots_on

from .arguments import finite, shown, text, whole

MAX_SLOTS: Final = 10_000  # of a sweep, and cores of a slot: more is a slip of the keyboard


@dataclass(frozen=True)
class Resources:
    """The resources of one worker slot.

    Args:
        cpus: CPU cores, which is the number of threads of a rank.
        gpus: GPUs of a rank, a whole number; or a fraction below 1 if several slots share one.
        memory: bytes that a rank may use; None for all memory of its device.
        accelerator: kind of its GPUs, as Ray names it, such as "H100"; "" for any. For clusters.
    """

    cpus: int = 1
    gpus: float = 0.0
    memory: int | None = None
    accelerator: str = ""

    def local_slots(self) -> int:
        """How many such slots this machine has room for, at least 1."""
        slots = count_cpus() // max(1, self.cpus)
        if self.gpus > 0:
            slots = min(slots, slots_on(_num_gpus(), self.gpus))
        return max(1, slots)


def _num_gpus() -> int:
    """How many GPUs torch can use and this process may use."""
    found = len(detect().gpus)
    named = named_gpus()  # it may have changed since `detect`
    return found if named is None else min(found, len(named))


def local_gpus() -> int:
    """How many GPUs trials of this machine can use; torch is loaded only if there may be any."""
    return _num_gpus() if may_have_gpus() else 0


def default_gpus(num_gpus: int, workers: int | None) -> float:
    """GPUs of a slot if nothing is said: one, or a share if there are more workers than GPUs.

    Args:
        num_gpus: of the machine.
        workers: number of slots; None for as many as there is room for.
    """
    if not num_gpus:
        return 0.0
    return 1.0 if workers is None or workers <= num_gpus else 1 / -(-workers // num_gpus)


def default_text(gpus: float) -> str:
    """Says which GPUs a slot has by default; "" for none."""
    if not gpus:
        return ""
    have = "a GPU" if gpus == 1 else f"{gpus:.2g} of a GPU"
    return f"each worker has {have}; set the resources to `gpus: 0` for trials on the CPU"


def gpus_rule(gpus: float) -> str:
    """Why a slot cannot have this many GPUs; "" if it can."""
    if gpus <= 1 or gpus == int(gpus):
        return ""
    return f"gpus of a slot are a whole number, or a share of one GPU below 1, got {gpus:g}"


def accelerator_rule(accelerator: str, gpus: float | None) -> str:
    """Why a slot cannot ask for a kind of GPU; "" if it can. `gpus` is None if it is not said."""
    if accelerator and gpus == 0:
        return f"a slot with the accelerator {accelerator!r} needs gpus, got none"
    return ""


def local_resources(
    given: Resources | Mapping[str, Any] | None, workers: int | None
) -> tuple[Resources | Mapping[str, Any] | None, str]:
    """The resources of a slot on this machine, with its GPUs if the user does not say how many.

    Args:
        given: by the user, not checked yet.
        workers: number of slots; None for as many as there is room for.

    Returns:
        What `read_resources` takes, and a line for a person about the choice ("" without one).
    """
    if given is not None and (not isinstance(given, Mapping) or "gpus" in given):
        return given, ""
    gpus = default_gpus(local_gpus(), workers)
    return {**(given or {}), "gpus": gpus}, default_text(gpus)


def read_resources(resources: Resources | Mapping[str, Any] | None) -> Resources:
    """Parse the resources of a slot; raises UsageError if they are malformed."""
    if isinstance(resources, Resources):
        resources = vars(resources)
    if not isinstance(resources, Mapping | None):
        raise UsageError(
            f"resources must map cpus, gpus and memory to numbers, got {shown(resources)}"
        )
    given = dict(resources or {})
    if unknown := [key for key in given if key not in vars(Resources())]:
        raise UsageError(
            f"resources are cpus, gpus, memory and accelerator, got {shown(unknown[0])}"
        )
    cpus = whole("cpus of a slot", given.get("cpus", 1), least=1)
    if cpus > MAX_SLOTS:
        raise UsageError(f"a slot has at most {MAX_SLOTS} CPUs, got {cpus}")
    gpus = finite("gpus of a slot", given.get("gpus", 0.0))
    memory = given.get("memory")
    if gpus < 0:
        raise UsageError(f"gpus of a slot must not be negative, got {gpus:g}")
    if rule := gpus_rule(gpus):
        raise UsageError(rule)
    if memory is not None:
        memory = whole("memory of a slot (bytes)", memory, least=1)
    accelerator = text("accelerator of a slot", given.get("accelerator", ""))
    if rule := accelerator_rule(accelerator, gpus):
        raise UsageError(rule)
    return Resources(cpus, gpus, memory, accelerator)
