"""Measured peak memory of a rank: of the CUDA allocator, or on CPUs of the resident set.

torch is imported only for what needs it, so that a trial without torch starts quickly.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


_STATUS = Path("/proc/self/status")
_RESET_HIGH_WATER = Path("/proc/self/clear_refs")


class PeakMemory:
    """Measures the peak above a baseline, from construction on.

    On CPUs, free memory is first returned to the system and the kernel's high-water mark is reset.
    If the kernel refuses the reset, only growth beyond the highest mark of the process is measured.
    Pages of files, such as those of libraries, do not count: a forked process has few at first.

    `add_children` adds a sample of child processes; see `ChildProcesses`.

    Args:
        device: of the rank, such as "cpu" or "cuda:0".
    """

    def __init__(self, device: torch.device | str) -> None:
        self._device = str(device)
        self._cuda = self._device.startswith("cuda")
        self.restart()

    def restart(self) -> None:
        """Measure from now on: memory in use now becomes the baseline."""
        gc.collect()
        if not self._cuda:
            trim()
        elif torch := self._torch():
            torch.cuda.empty_cache()
        self._highest = 0  # of what the marks of the system do not show any more
        self._reset()
        self._baseline = self._now()

    def bytes(self) -> int:
        """Peak so far above the baseline, in bytes."""
        if not self._cuda:
            mark = high_water_bytes() - _status("RssFile")
        else:
            torch = self._torch()
            mark = torch.cuda.max_memory_allocated(self._device) if torch else 0
        return max(self._highest, mark - self._baseline)

    def details(self) -> dict[str, int]:
        """What a GPU holds beside the peak of the trial's tensors, in bytes; empty on a CPU.

        `peak_allocated_bytes` counts the baseline too, `peak_reserved_bytes` the pieces that
        torch's allocator keeps free. At the end of the trial, `gpu_used_bytes` is what the driver
        counts for all processes.
        """
        torch = self._torch()
        if torch is None:
            return {}
        found = {
            "peak_allocated_bytes": torch.cuda.max_memory_allocated(self._device),
            "peak_reserved_bytes": torch.cuda.max_memory_reserved(self._device),
        }
        with contextlib.suppress(RuntimeError):  # of a GPU that fails
            free, total = torch.cuda.mem_get_info(self._device)
            found["gpu_used_bytes"] = total - free
        return found

    @property
    def on_gpu(self) -> bool:
        """Whether the memory of a GPU is measured."""
        return self._cuda

    def add_children(self, num_bytes: int) -> None:
        """Note how many bytes of the measured memory child processes hold now."""
        own = max(0, self._now() - self._baseline)  # the system may take pages back
        self._highest = max(self._highest, own + num_bytes)

    def _torch(self) -> Any:
        """torch, if the device is a GPU and this process has loaded torch."""
        return sys.modules.get("torch") if self._cuda else None

    def _now(self) -> int:
        if not self._cuda:
            return resident_bytes() - _status("RssFile")
        torch = self._torch()
        return int(torch.cuda.memory_allocated(self._device)) if torch else 0

    def _reset(self) -> None:
        """Let the mark of the highest use begin at the present one."""
        if torch := self._torch():
            torch.cuda.reset_peak_memory_stats(self._device)
        elif not self._cuda:
            with contextlib.suppress(OSError):
                _RESET_HIGH_WATER.write_text("5")


class Contributions:
    """Memory by module: parameters, gradients, optimizer state, and activations for backward.

    Use `recording` around the forward passes of one microbatch.

    Args:
        model: all of its modules are counted.
    """

    def __init__(self, model: nn.Module) -> None:
        self.names = {module: name for name, module in model.named_modules() if name}
        self.activations: dict[str, int] = {}
        self._stack: list[str] = []
        self._seen: set[int] = set()
        held = [*model.parameters(), *model.buffers()]
        self._ignored = {_storage(tensor) for tensor in held}  # these are no activations

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Count the tensors that autograd saves, by module."""
        from torch.autograd.graph import saved_tensors_hooks
        from torch.nn.modules import module as hooks

        handles = [
            hooks.register_module_forward_pre_hook(lambda module, _: self._enter(module)),
            hooks.register_module_forward_hook(
                lambda module, *_: self._leave(module), always_call=True
            ),
        ]
        try:
            with saved_tensors_hooks(self._keep, lambda tensor: tensor):
                yield
        finally:
            for handle in handles:
                handle.remove()
            self._seen.clear()
            self._stack.clear()

    def table(
        self, parameters: Mapping[str, Tensor], state: Callable[[Tensor], int]
    ) -> dict[str, int]:
        """The ten largest modules and their bytes.

        Args:
            parameters: of this rank by name.
            state: bytes of the optimizer state of a parameter.
        """
        total = dict(self.activations)
        for name, parameter in parameters.items():
            module = name.rpartition(".")[0]
            held = nbytes(parameter) * (2 if parameter.requires_grad else 1) + state(parameter)
            total[module] = total.get(module, 0) + held
        return dict(sorted(total.items(), key=lambda item: -item[1])[:10])

    def _enter(self, module: nn.Module) -> None:
        if module in self.names:
            self._stack.append(self.names[module])

    def _leave(self, module: nn.Module) -> None:
        if module in self.names and self._stack:
            self._stack.pop()

    def _keep(self, tensor: Tensor) -> Tensor:
        key = _storage(tensor)
        if key not in self._seen and key not in self._ignored:
            self._seen.add(key)
            module = self._stack[-1] if self._stack else "loss"
            size = tensor.untyped_storage().nbytes()
            self.activations[module] = self.activations.get(module, 0) + size
        return tensor


def nbytes(tensor: Tensor) -> int:
    """Bytes of the part of a tensor on this rank."""
    local: Any = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return int(local.nbytes)


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def resident_bytes() -> int:
    """Resident set of this process now, in bytes."""
    return _status("VmRSS") or high_water_bytes()


def high_water_bytes() -> int:
    """Highest resident set of this process since its start or the last reset, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _status(key: str) -> int:
    """A value of /proc/self/status in bytes; 0 if the system has no such file."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key + ":")), 0)


def trim() -> None:
    """Return free memory to the system; takes some milliseconds."""
    with contextlib.suppress(OSError, AttributeError):  # only glibc has this function
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def allocate_by(threshold: int, kept: int) -> None:
    """Set how the C library takes memory from the system and returns it.

    Args:
        threshold: blocks of at least this many bytes are mapped alone, and returned when they are
            freed. glibc's own threshold grows with the freed blocks, up to 32 MB. Smaller blocks
            remain in pieces that the next batch, of another shape, often cannot use.
        kept: this many free bytes are kept at the end of the heap. If an update frees more, each
            update
            takes its memory anew, page by page: a sixth of the time of a small convolutional
                network.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL("libc.so.6")
        library.mallopt(-3, threshold)  # M_MMAP_THRESHOLD
        library.mallopt(-1, kept)  # M_TRIM_THRESHOLD


def keep_few_kernels(count: int = 128) -> None:
    """Let oneDNN and torch's layer over it keep `count` kernels, unless the environment says so.

    Their default is 1,024. A kernel takes about a megabyte for products of thousands of rows. If
    most batches have a shape of their own, kernels are hardly used again and would take gigabytes.
    Both libraries read the number once, at their first kernel.
    """
    for name in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
        os.environ.setdefault(name, str(count))


MIN_SECONDS: Final = 0.1  # between two samples
CLOCK_TICK: Final = 0.01  # to which the system rounds the start of a process
SHARE: Final = 0.01  # of a core that sampling may take


class ChildProcesses:
    """Adds the memory of new child processes, at all depths, to a measurement while it is entered.

    A thread takes samples, so a process that lives for less than a tenth of a second may be missed.
    Pages that a child shares with this process after a fork do not count (unique set size).

    Args:
        memory: the measurement.
    """

    def __init__(self, memory: PeakMemory) -> None:
        self._memory = memory
        self._process = psutil.Process()
        self._ended = threading.Event()
        self._begun = _now() - CLOCK_TICK
        self._thread = threading.Thread(target=self._sample, name="child-memory", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        wait = MIN_SECONDS
        while not self._ended.wait(wait):
            began = time.thread_time()
            with suppress(psutil.Error, OSError):
                found = self._process.children(recursive=True)
                self._memory.add_children(sum(_unique_bytes(c, self._begun) for c in found))
            wait = max(MIN_SECONDS, (time.thread_time() - began) / SHARE)


def _now() -> float:
    """The present time, on the clock of `psutil.Process.create_time`."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return float(psutil.boot_time() + time.clock_gettime(time.CLOCK_BOOTTIME))
    return time.time()


def _unique_bytes(process: psutil.Process, begun: float) -> int:
    """Bytes of a process that no other shares; 0 if it has begun before."""
    try:
        return int(process.memory_full_info().uss) if process.create_time() >= begun else 0
    except (psutil.Error, OSError):  # it has ended, or it belongs to another user
        return 0
