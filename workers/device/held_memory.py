"""The memory that a warm process still holds after a trial."""

import gc
import sys
from typing import Final

from .peak_memory import resident_bytes, trim

MAX_BYTES: Final = 1_000_000_000  # of main memory, above what the first trial has left
MAX_GPU_BYTES: Final = 250_000_000  # in tensors; the workspaces of cuBLAS are some of them


class HeldMemory:
    """Says when a process holds so much memory of earlier trials that it should be replaced.

    Main memory counts from the end of the first trial: libraries are loaded by then, and what a
    function caches for later trials is there. A GPU's memory counts from the start, because the
    next trial would have less of it than in a new process.

    Args:
        max_bytes, max_gpu_bytes: that may be held.
    """

    def __init__(self, max_bytes: int = MAX_BYTES, max_gpu_bytes: int = MAX_GPU_BYTES) -> None:
        self._max_bytes = max_bytes
        self._max_gpu_bytes = max_gpu_bytes
        self._first: int | None = None

    def excess(self, device: str) -> str:
        """What is held above the limit, for a person; "" if the process may go on.

        Args:
            device: of the trial that has just ended.
        """
        torch = sys.modules.get("torch") if device.startswith("cuda") else None
        on_gpu = torch.cuda.memory_allocated(device) if torch else 0
        if on_gpu > self._max_gpu_bytes:
            return f"{on_gpu / 1e9:.2f} GB of its GPU's memory"
        if self._first is None:
            self._first = resident_bytes()
        if resident_bytes() - self._first <= self._max_bytes:
            return ""
        gc.collect()
        trim()
        held = resident_bytes() - self._first
        return f"{held / 1e9:.2f} GB of memory" if held > self._max_bytes else ""
