"""Which GPUs the process of a worker sees."""

import os
from collections.abc import Mapping
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


def environment_of(slot: int, gpus: float) -> Mapping[str, str]:
    """The variables with which a worker sees the GPUs of its slot, and no others.

    Args:
        slot: number of the slot, from 0.
        gpus: GPUs of a slot; below 1 if several slots share one.

    Raises:
        UsageError: this machine has too few GPUs.
    """
    if gpus <= 0:
        return {}
    names = visible_gpus()
    first = int(slot * gpus + 1e-9)
    last = first + max(1, int(gpus))
    if last > len(names):
        raise UsageError(
            f"slot {slot} of {gpus:g} GPUs needs GPU number {last - 1}, and this process may use "
            f"{len(names)} ({', '.join(names) or 'none'}): ask for fewer workers"
        )
    return {VARIABLE: ",".join(names[first:last])}
