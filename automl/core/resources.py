"""The resources of a worker slot."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from automl.errors import UsageError
from search_spaces.hardware import count_cpus, detect, may_have_gpus
from workers.runtime.devices import named_gpus, slots_on

from .arguments import mapping
from .keys import SIZE, TEXT, Kind, at_least, key, keys_of, read_keys, whole

MAX_SLOTS: Final = 10_000  # of a sweep, and cores of a slot: more is a slip of the keyboard


def _gpus(name: str, value: Any) -> float:
    gpus: float = at_least(0).read(name, value)
    if gpus > 1 and gpus != int(gpus):
        raise UsageError(
            f"gpus of a slot are a whole number, or a share of one GPU below 1, got {gpus:g}"
        )
    return gpus


MAX_CORES: Final = 16  # of a slot with a GPU, by default: more prepare no batch faster


@dataclass(frozen=True)
class Resources:
    """The resources of one worker slot. Its cores are the threads of a rank; memory is in bytes."""

    cpus: int = key(whole(1, MAX_SLOTS), "Cores.", "cpus: 4", 1)
    gpus: float = key(
        Kind(at_least(0).words, _gpus),
        "GPUs: a whole number, or a share below 1.",
        "gpus: 0.5",
        0.0,
        "1 if this machine has GPUs",
    )
    memory: int | None = key(SIZE, "What a rank may use.", "memory: 8GB", None, "no limit")
    accelerator: str = key(
        TEXT,
        "Kind of GPU on a Ray cluster, as `ray status` shows it.",
        "accelerator: H100",
        "",
        "any",
    )

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


def given_resources(name: str, value: Any) -> dict[str, Any]:
    """The resources of a slot that a person names; those that they leave out are not in it.

    Raises:
        UsageError: they are malformed.
    """
    given = vars(value) if isinstance(value, Resources) else mapping(name, value)
    found = read_keys(keys_of(Resources), given, "a slot")
    if found.get("accelerator") and found.get("gpus") == 0:
        raise UsageError(
            f"a slot with the accelerator {found['accelerator']!r} needs gpus, got none"
        )
    return found


RESOURCES: Final = Kind("mapping", given_resources, keys_of(Resources))


def default_gpus(num_gpus: int, workers: int | None) -> float:
    """GPUs of a slot if nothing is said: one, or a share if there are more workers than GPUs.

    Args:
        num_gpus: of the machine.
        workers: number of slots; None for as many as there is room for.
    """
    if not num_gpus:
        return 0.0
    return 1.0 if workers is None or workers <= num_gpus else 1 / -(-workers // num_gpus)


def slot_resources(
    given: Mapping[str, Any], num_gpus: int, workers: int | None
) -> tuple[Resources, str]:
    """The resources of a slot, with GPUs of its machine if the user does not say how many.

    Args:
        given: `given_resources` of the user.
        num_gpus: of the machine.
        workers: number of slots; None for as many as there is room for.

    Returns:
        The resources, and a line for a person about the choice ("" without one).
    """
    if "gpus" in given:
        return Resources(**_with_cores(given, given["gpus"], num_gpus, workers)), ""
    gpus = default_gpus(num_gpus, workers)
    have = "a GPU" if gpus == 1 else f"{gpus:.2g} of a GPU"
    note = f"each worker has {have}; set the resources to `gpus: 0` for trials on the CPU"
    if given.get("accelerator") and not gpus:
        return Resources(**given, gpus=1.0), ""  # the nodes have them
    given = _with_cores(given, gpus, num_gpus, workers)
    return Resources(**given, gpus=gpus), note if gpus else ""


def _with_cores(
    given: Mapping[str, Any], gpus: float, num_gpus: int, workers: int | None
) -> Mapping[str, Any]:
    """The resources with the cores of a slot: its part of the machine's if it has a GPU."""
    if "cpus" in given or gpus <= 0 or not num_gpus:
        return given
    slots = max(slots_on(num_gpus, gpus), workers or 0, 1)
    return {**given, "cpus": max(1, min(MAX_CORES, count_cpus() // slots))}
