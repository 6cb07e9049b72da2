"""The batch of a search: when finished sentences leave it, and which size it then has."""

import torch
from torch import Tensor

_SHRINK = 0.75  # finished sentences leave the batch if at most this share is unfinished
_STEP = 4  # batch sizes are rounded up to a multiple of this
_GPU_INTERVAL = 8  # tokens between two looks at what is finished; the host waits for the GPU then


def interval(device: torch.device) -> int:
    """Tokens between two looks at what is finished; on CPUs a look costs nothing."""
    return 1 if device.type == "cpu" else _GPU_INTERVAL


def cut(left: int, size: int) -> int:
    """The new size of a batch of `size` that has `left` unfinished sentences.

    Sizes are rounded up, because each size needs its own kernels.
    """
    few = left if left <= 2 else -(-left // _STEP) * _STEP
    return few if left <= _SHRINK * size else size


def first(wanted: Tensor, count: int) -> Tensor:
    """Indices of `count` rows; the wanted ones (b,) come first."""
    return wanted.int().argsort(descending=True, stable=True)[:count]
