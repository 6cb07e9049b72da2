"""Measured peak memory of a rank: of the CUDA allocator, or on CPUs of the resident set.

torch is imported only for what needs it, so that a trial without torch starts quickly.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
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

# What a process takes of a GPU beside torch's allocator, roughly: the CUDA context and its kernels.
CONTEXT_BYTES: Final = 500_000_000
MIN_SECONDS: Final = 0.1  # between two samples of child processes
SHARE: Final = 0.01  # of a core that sampling may take


class PeakMemory:
    """Measures the peak above a baseline, from construction on.

    On CPUs, free memory is first returned to the system and the kernel's high-water mark is reset.
    If the kernel refuses the reset, only growth beyond the highest mark of the process is measured.
    Pages of files, such as those of libraries, do not count: a forked process has few at first.

    Args:
        device: of the rank, such as "cpu" or "cuda:0".

    Attributes:
        on_gpu: whether the memory of a GPU is measured.
    """

    def __init__(self, device: torch.device | str) -> None:
        self._device = str(device)
        self.on_gpu = self._device.startswith("cuda")
        self.restart()

    def restart(self) -> None:
        """Measure from now on: memory in use now becomes the baseline."""
        gc.collect()
        self._highest = 0  # of what the marks of the system do not show
        if torch := self._torch():
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self._device)
        elif not self.on_gpu:
            trim()
            with suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")
        self._baseline = self._used()

    def bytes(self) -> int:
        """Peak so far above the baseline, in bytes."""
        return max(self._highest, self._used(peak=True) - self._baseline)

    @contextlib.contextmanager
    def with_children(self) -> Iterator[None]:
        """While inside, count what new child processes hold too, at all depths.

        A thread takes samples, so a process that lives for less than a tenth of a second may be
        missed. Pages that a child shares with this process after a fork do not count.
        """
        ended, process = threading.Event(), psutil.Process()
        others = set(process.children(recursive=True))

        def sample() -> None:
            wait = MIN_SECONDS
            while not ended.wait(wait):
                began = time.thread_time()
                with suppress(psutil.Error, OSError):  # one has ended, or is another user's
                    new = set(process.children(recursive=True)) - others
                    held = sum(child.memory_full_info().uss for child in new)
                    own = max(0, self._used() - self._baseline)  # pages may have been taken back
                    self._highest = max(self._highest, own + held)
                wait = max(MIN_SECONDS, (time.thread_time() - began) / SHARE)

        thread = threading.Thread(target=sample, name="child-memory", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _torch(self) -> Any:
        """torch, if the device is a GPU and this process has loaded torch."""
        return sys.modules.get("torch") if self.on_gpu else None

    def _used(self, *, peak: bool = False) -> int:
        """Bytes in use now, or at the peak since the last reset."""
        if not self.on_gpu:
            return _status("VmHWM" if peak else "VmRSS") - _status("RssFile")
        if (torch := self._torch()) is None:
            return 0
        measured = torch.cuda.max_memory_allocated if peak else torch.cuda.memory_allocated
        return int(measured(self._device))


def _status(key: str) -> int:
    """A value of /proc/self/status in bytes; 0 if the system has no such file."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key + ":")), 0)


class Contributions:
    """Memory by module: parameters, gradients, optimizer state, and activations for backward.

    Use `recording` around the forward passes of one microbatch.

    Args:
        model: all of its modules are counted.
    """

    def __init__(self, model: nn.Module) -> None:
        self.names = {module: name for name, module in model.named_modules() if name}
        self.activations: dict[str, int] = {}
        self._inside: list[nn.Module] = []  # the modules whose forward runs, the innermost last
        held = [*model.parameters(), *model.buffers()]  # these are no activations
        self._seen = {tensor.untyped_storage()._cdata for tensor in held}

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Count the tensors that autograd saves, by module."""
        from torch.autograd.graph import saved_tensors_hooks
        from torch.nn.modules import module as hooks

        handles = [
            hooks.register_module_forward_pre_hook(lambda module, _: self._inside.append(module)),
            hooks.register_module_forward_hook(self._leave, always_call=True),
        ]
        try:
            with saved_tensors_hooks(self._keep, lambda tensor: tensor):
                yield
        finally:
            for handle in handles:
                handle.remove()

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

    def _leave(self, *_: Any) -> None:
        self._inside.pop()

    def _keep(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._seen:
            self._seen.add(storage._cdata)
            named = (self.names[one] for one in reversed(self._inside) if one in self.names)
            module = next(named, "loss")
            self.activations[module] = self.activations.get(module, 0) + storage.nbytes()
        return tensor


def nbytes(tensor: Tensor) -> int:
    """Bytes of the part of a tensor on this rank."""
    local: Any = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return int(local.nbytes)


def trim() -> None:
    """Return free memory to the system; takes some milliseconds."""
    with suppress(OSError, AttributeError):  # only glibc has this function
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
    with suppress(OSError, AttributeError):
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
