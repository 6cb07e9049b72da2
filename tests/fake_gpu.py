"""A GPU for machines without one: `torch.cuda` is replaced, and tensors lie in main memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch

TOTAL_BYTES = 80_000_000_000


@dataclass
class FakeCuda:
    """Stands for the functions of `torch.cuda` that this project calls.

    Attributes:
        error: every call that reaches the device raises it, as in a poisoned context; "" for none.
        calls: the names of the functions that were called.
        fraction: of the memory that torch may use.
        allocated, reserved: bytes of torch's allocator, now and at the peak.
    """

    error: str = ""
    calls: list[str] = field(default_factory=list)
    fraction: float = 1.0
    allocated: int = 0
    reserved: int = 0

    def reach(self, name: str) -> None:
        """A call that reaches the device."""
        self.calls.append(name)
        if self.error:
            raise torch.AcceleratorError(f"CUDA error: {self.error}\nCompile with ...")

    def synchronize(self, device: Any = None) -> None:
        self.reach("synchronize")

    def empty_cache(self) -> None:
        self.reach("empty_cache")
        self.reserved = self.allocated

    def set_device(self, device: Any) -> None:
        self.reach("set_device")

    def set_per_process_memory_fraction(self, fraction: float, device: Any = None) -> None:
        self.fraction = fraction

    def get_device_properties(self, device: Any = None) -> Any:
        return SimpleNamespace(total_memory=TOTAL_BYTES, uuid="fake", name="fake", major=9, minor=0)

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        return 9, 0

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def memory_allocated(self, device: Any = None) -> int:
        return self.allocated

    max_memory_allocated = memory_allocated

    def max_memory_reserved(self, device: Any = None) -> int:
        return self.reserved

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        self.calls.append("reset_peak_memory_stats")

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        self.reach("mem_get_info")
        return TOTAL_BYTES - self.reserved, TOTAL_BYTES

    def ones(self, *shape: int, device: Any = None, **settings: Any) -> torch.Tensor:
        """`torch.ones`, which is how this project asks whether a GPU computes."""
        if str(device).startswith("cuda"):
            self.reach("ones")
            device = None
        return _ONES(*shape, device=device, **settings)

    def install(self, patch: Any = setattr) -> FakeCuda:
        """Take the place of the real functions; `patch` is `setattr` or pytest's."""
        for name in dir(FakeCuda):
            if name.startswith("_") or name in ("install", "reach", "ones", *self.__dict__):
                continue
            patch(torch.cuda, name, getattr(self, name))
        patch(torch, "ones", self.ones)
        return self


_ONES = torch.ones
