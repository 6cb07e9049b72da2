"""Peak memory of a rank, measured: the CUDA allocator's, or on CPUs the resident set's high water above a baseline."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import resource
import sys
from pathlib import Path

import torch

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")


class PeakMemory:
    """Measures the peak from its construction on.

    On CPUs memory that an earlier trial left behind in this process is given back to the system first and the
    kernel's high-water mark is reset, so that a reused worker measures the same as a fresh one. Where the kernel
    does not allow the reset, only growth beyond the process's highest mark so far is seen.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)
            self._baseline = torch.cuda.memory_allocated(device)
        else:
            _trim()
            _reset_high_water()
            self._baseline = resident_bytes()

    def bytes(self) -> int:
        """Peak so far above the baseline."""
        if self.device.type == "cuda":
            return max(0, torch.cuda.max_memory_allocated(self.device) - self._baseline)
        return max(0, high_water_bytes() - self._baseline)


def resident_bytes() -> int:
    """Resident set of this process now."""
    return _status("VmRSS") or high_water_bytes()


def high_water_bytes() -> int:
    """Highest resident set of this process since it began or was last reset."""
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return _status("VmHWM") or usage


def _status(key: str) -> int:
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key + ":")), 0)


def _trim() -> None:
    with contextlib.suppress(OSError, AttributeError):  # another C library keeps what it has
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def _reset_high_water() -> None:
    with contextlib.suppress(OSError):
        _RESET.write_text("5")
