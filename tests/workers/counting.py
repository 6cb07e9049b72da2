"""Counts what costs time on a GPU: copies, collectives, and waits of the host for the device."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

WAITS = ("_local_scalar_dense", "item", "nonzero", "masked_select", "is_nonzero")


class Counting(TorchDispatchMode):
    """Counts operations by name.

    Attributes:
        calls: by name, such as "mm" or "allreduce_".
        narrowed: the shapes of fp32 tensors that were copied into a half precision.
        gathered: the formats of tensors that all ranks gathered.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.narrowed: list[tuple[int, ...]] = []
        self.gathered: set[torch.dtype] = set()

    @property
    def waits(self) -> int:
        """How often the host would wait for a GPU."""
        return sum(self.calls[name] for name in WAITS)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[1]
        self.calls[name] += 1
        halves = (torch.bfloat16, torch.float16)
        if name == "_to_copy" and args[0].dtype is torch.float32 and result.dtype in halves:
            self.narrowed.append(tuple(result.shape))
        if name == "_allgather_base_":
            self.gathered.add(args[1].dtype)
        return result
