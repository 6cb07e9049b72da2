"""The device that a computation is planned for, if its tensors lie elsewhere.

The estimate of memory runs a model on fake tensors, and fake tensors of a GPU need a build of torch
for GPUs. So they are tensors of the CPU that are planned for the GPU. Code that computes in another
way on a GPU asks `device_type`, and not the tensor.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import torch
from torch import Tensor

_PLANNED: Final = ContextVar("planned device", default="")


def device_type(tensor: Tensor) -> str:
    """The type of the device on which the tensor is computed, such as "cpu" or "cuda"."""
    if torch.compiler.is_compiling():
        return tensor.device.type
    return _PLANNED.get() or tensor.device.type


@contextmanager
def planned_for(kind: str) -> Iterator[None]:
    """Inside, tensors are computed as on a device of this type."""
    before = _PLANNED.set(kind)
    try:
        yield
    finally:
        _PLANNED.reset(before)
