"""A GPU for machines without one: `torch.cuda` is replaced, and tensors lie in main memory."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

TOTAL_BYTES = 80_000_000_000
_ONES = torch.ones


@dataclass
class FakeCuda:
    """Stands for the functions of `torch.cuda` that this project calls.

    Attributes:
        fraction: of the memory that torch may use.
        allocated, reserved: bytes of torch's allocator, now and at the peak.
    """

    fraction: float = 1.0
    allocated: int = 0
    reserved: int = 0

    def install(self, patch: Any = setattr) -> "FakeCuda":
        """Take the place of the real functions; `patch` is `setattr` or pytest's."""
        card = SimpleNamespace(total_memory=TOTAL_BYTES, uuid="fake", name="fake", major=9, minor=0)
        functions = {
            "synchronize": lambda *_: None,
            "empty_cache": lambda: setattr(self, "reserved", self.allocated),
            "set_device": lambda device: None,
            "set_per_process_memory_fraction": lambda one, *_: setattr(self, "fraction", one),
            "get_device_properties": lambda *_: card,
            "get_device_capability": lambda *_: (9, 0),
            "is_available": lambda: True,
            "device_count": lambda: 1,
            "memory_allocated": lambda *_: self.allocated,
            "max_memory_allocated": lambda *_: self.allocated,
            "max_memory_reserved": lambda *_: self.reserved,
            "reset_peak_memory_stats": lambda *_: None,
            "mem_get_info": lambda *_: (TOTAL_BYTES - self.reserved, TOTAL_BYTES),
        }
        for name, function in functions.items():
            patch(torch.cuda, name, function)
        patch(torch, "ones", lambda *shape, device=None, **given: _ONES(*shape, **given))
        return self
