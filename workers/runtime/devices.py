"""Which GPUs the process of a worker sees, and what `nvidia-smi` tells of all GPUs."""

import csv
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import takewhile
from typing import Final

from search_spaces.errors import UsageError

VARIABLE: Final = "CUDA_VISIBLE_DEVICES"
AMD_VARIABLE: Final = "HIP_VISIBLE_DEVICES"  # on an AMD machine it has priority
SMI_SECONDS: Final = 20.0  # it takes seconds if no process has opened the driver
_MIB: Final = 1 << 20
_NAME: Final = re.compile(r"[0-9]+|(GPU|MIG)-.*")


def named_gpus() -> list[str] | None:
    """The GPUs that `CUDA_VISIBLE_DEVICES` names, each once; None if it is not set.

    On an AMD machine `HIP_VISIBLE_DEVICES` has priority.

    A name is an index, or the beginning of a UUID ("GPU-..." or "MIG-..."). As in CUDA, anything
    else, such as -1, hides those after it. An index is taken as nvidia-smi's, in the order of the
    PCI bus. CUDA's own is the same only if CUDA_DEVICE_ORDER is PCI_BUS_ID or all GPUs are alike.
    """
    given = os.environ.get(AMD_VARIABLE) or os.environ.get(VARIABLE)
    if given is None:
        return None
    names = (name.strip() for name in given.split(","))
    return list(dict.fromkeys(takewhile(_NAME.fullmatch, names)))


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as `CUDA_VISIBLE_DEVICES` names them."""
    if (named := named_gpus()) is not None:
        return named
    import torch

    return [str(index) for index in range(torch.cuda.device_count())]


def slots_on(num_gpus: int, gpus: float) -> int:
    """How many slots fit on this many GPUs; with a fraction, as many whole slots as one GPU holds.

    Args:
        num_gpus: of the machine.
        gpus: of a slot, above 0: a whole number, or a fraction below 1.
    """
    return num_gpus * _slots_of_a_gpu(gpus) if gpus < 1 else num_gpus // int(gpus)


def gpus_of_slots(count: int, gpus: float) -> int:
    """How many GPUs this many slots need, of which each has `gpus`."""
    if gpus <= 0:
        return 0
    return -(-count // _slots_of_a_gpu(gpus)) if gpus < 1 else count * int(gpus)


def _slots_of_a_gpu(gpus: float) -> int:
    return int(1 / gpus + 1e-9)  # a third, written as 0.333333333, is a third


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
    last = gpus_of_slots(slot + 1, gpus)
    first = last - max(1, int(gpus))
    if last > len(names):
        raise UsageError(
            f"slot {slot} of {gpus:g} GPUs needs GPU number {last - 1}, and this process may use "
            f"{len(names)} of NVIDIA (CUDA) or AMD (ROCm): ask for fewer workers, or set the "
            "resources to `gpus: 0`"
        )
    chosen = ",".join(names[first:last])
    return {VARIABLE: chosen, **({AMD_VARIABLE: chosen} if AMD_VARIABLE in os.environ else {})}


def query(question: str, timeout: float = SMI_SECONDS) -> list[list[str]]:
    """The rows of an answer; none if there is no answer, as on a machine without the program."""
    try:
        done = subprocess.run(
            ["nvidia-smi", question, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [[cell.strip() for cell in row] for row in csv.reader(done.stdout.splitlines())]


@cache
def desktop_bytes() -> int:
    """Bytes of the only GPU that its desktop holds, while no program computes on it; else 0."""
    used = query("--query-gpu=memory.used")
    computing = query("--query-compute-apps=pid")
    alone = len(used) == 1 and not computing
    return int(used[0][0]) * _MIB if alone and used[0][0].isdigit() else 0
