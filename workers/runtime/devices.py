"""Which GPUs the process of a worker sees."""

import os
from collections.abc import Mapping, Sequence
from typing import Final

from search_spaces.errors import UsageError

VARIABLE: Final = "CUDA_VISIBLE_DEVICES"


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as `CUDA_VISIBLE_DEVICES` names them."""
    given = os.environ.get(VARIABLE)
    if given is not None:
        return [name.strip() for name in given.split(",") if name.strip()]
    import torch

    return [str(index) for index in range(torch.cuda.device_count())]


def gpus_of_slots(count: int, gpus: float) -> int:
    """How many GPUs so many slots need, of which each has `gpus`."""
    return int((count - 1) * gpus + 1e-9) + max(1, int(gpus)) if gpus > 0 else 0


def cuda_device(names: Sequence[str]) -> str:
    """The first of these GPUs as torch calls it in this process.

    CUDA may have begun before the GPUs were chosen, so it may see others too.
    """
    import torch

    for index in range(torch.cuda.device_count() if names and names[0].startswith("GPU-") else 0):
        if str(torch.cuda.get_device_properties(index).uuid) == names[0].removeprefix("GPU-"):
            return f"cuda:{index}"
    return "cuda:0"


def environment_of(slot: int, gpus: float, names: Sequence[str] | None = None) -> Mapping[str, str]:
    """The variables with which a worker sees the GPUs of its slot, and no others.

    Args:
        slot: number of the slot, from 0.
        gpus: GPUs of a slot; below 1 if several slots share one.
        names: of the GPUs of all slots; None for all that this process may use.

    Raises:
        UsageError: this machine has too few GPUs.
    """
    if gpus <= 0:
        return {}
    names = visible_gpus() if names is None else names
    first = int(slot * gpus + 1e-9)
    last = first + max(1, int(gpus))
    if last > len(names):
        raise UsageError(
            f"slot {slot} of {gpus:g} GPUs needs GPU number {last - 1}, and this process may use "
            f"{len(names)} ({', '.join(names) or 'none'}): ask for fewer workers"
        )
    return {VARIABLE: ",".join(names[first:last])}
