"""A rank's share of a GPU, and what `nvidia-smi` tells of all GPUs."""

import csv
import platform
import subprocess
from functools import cache
from typing import Final

# What a process takes of a GPU beside torch's allocator, roughly: the CUDA context and its kernels.
CONTEXT_BYTES: Final = 500_000_000
# torch's allocator gives out multiples of this (torch.distributed._tools.mem_tracker).
GPU_BLOCK: Final = 512


def memory_share(total: int, gpus: float, limit: int | None) -> float:
    """The share of a GPU's memory that torch may allocate in this process.

    Args:
        total: bytes of the GPU.
        gpus: of the rank. With a fraction, the process has this share, its CUDA context included.
        limit: bytes that the rank may use; None for no limit of its own.
    """
    share = 1.0
    if 0 < gpus < 1:
        share = max(gpus - CONTEXT_BYTES / total, gpus / 2)
    return share if limit is None else min(share, limit / total)


def spills() -> bool:
    """Whether the driver puts into main memory what does not fit on the GPU, as under WSL.

    An attempt would crawl there for hours, in place of a failure for want of memory.
    """
    return "microsoft" in platform.release().lower()


SMI_SECONDS: Final = 20.0  # it takes seconds if no process has opened the driver
_MIB: Final = 1 << 20


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
