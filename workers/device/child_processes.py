"""The memory of the processes that a trial starts."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from .nvidia_smi import process_bytes

if TYPE_CHECKING:
    from .peak_memory import PeakMemory

LEAST_SECONDS: Final = 0.1  # between two samples
CLOCK_TICK: Final = 0.01  # to which the system rounds the start of a process
SHARE: Final = 0.01  # of a core that sampling may take
GPU_SHARE: Final = 0.05  # of the time in which nvidia-smi may run
_LISTED: Final = Path(f"/proc/self/task/{os.getpid()}/children").exists()


class ChildProcesses:
    """Adds the memory of new child processes, at all depths, to a measurement while it is entered.

    A thread takes samples, so a process that lives for less than a tenth of a second may be missed.
    Pages that a child shares with this process after a fork do not count (unique set size). On a
    GPU, the driver's count for the processes is taken: nothing in a container, where it knows them
    by other numbers.

    Args:
        memory: the measurement.
        process: whose children are measured, however old they are; by default those of this process
            that are new.
    """

    def __init__(self, memory: PeakMemory, process: psutil.Process | None = None) -> None:
        self._memory = memory
        self._process = process or psutil.Process()
        self._ended = threading.Event()
        self._begun = _now() - CLOCK_TICK if process is None else 0.0
        self._thread = threading.Thread(target=self._sample, name="child-memory", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        wait, gpu = LEAST_SECONDS, self._memory.on_gpu
        clock, share = (time.monotonic, GPU_SHARE) if gpu else (time.thread_time, SHARE)
        while not self._ended.wait(wait):
            began = clock()
            if found := self._children():
                self._memory.add_children(_gpu_bytes(found) if gpu else _host_bytes(found))
            wait = max(LEAST_SECONDS, (clock() - began) / share)

    def _children(self) -> list[psutil.Process]:
        """Processes that have begun since the trial has."""
        try:
            found = _descendants(self._process)
        except (psutil.Error, OSError):
            return []
        return [child for child in found if _begun(child) >= self._begun]


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    """The children of a process, and theirs; Linux lists them without a look at all processes."""
    if not _LISTED:
        return process.children(recursive=True)
    found: list[psutil.Process] = []
    parents = [process.pid]
    while parents:
        children = _children_of(parents.pop())
        parents += children
        for pid in children:
            with suppress(psutil.Error):  # it has ended
                found.append(psutil.Process(pid))
    return found


def _children_of(pid: int) -> list[int]:
    """The children of each thread of a process."""
    found: list[int] = []
    with suppress(OSError):  # it has ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += map(int, (task / "children").read_text().split())
    return found


def _now() -> float:
    """The present time, on the clock of `psutil.Process.create_time`."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return float(psutil.boot_time() + time.clock_gettime(time.CLOCK_BOOTTIME))
    return time.time()


def _begun(process: psutil.Process) -> float:
    try:
        return float(process.create_time())
    except (psutil.Error, OSError):
        return 0.0


def _gpu_bytes(processes: list[psutil.Process]) -> int:
    return process_bytes({process.pid for process in processes}) or 0


def _host_bytes(processes: list[psutil.Process]) -> int:
    return sum(map(_unique_bytes, processes))


def _unique_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().uss)
    except (psutil.Error, OSError):  # it has ended, or it belongs to another user
        return 0
