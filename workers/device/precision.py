"""Number formats of training: fp32, tf32, bf16 and fp16 with dynamic loss scaling; master weights stay fp32.

fp64 is no knob: it tells rounding from mistakes (benchmarks/training/strategies.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from search_spaces.errors import UsageError

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
PRECISIONS = ("fp32", "tf32", *_AUTOCAST, "fp64")
MATMUL_PRECISIONS = ("highest", "high", "medium")


@dataclass
class LossScaler:
    """Dynamic loss scaling for fp16 (Micikevicius et al. 2018, https://arxiv.org/abs/1710.03740).

    The constants are those of `torch.amp.GradScaler`. That class looks for overflow in each rank's gradients alone;
    ours is told by the global norm, so that ranks which hold different shards skip the same updates.
    """

    scale: float = 65536.0
    streak: int = 0
    growth_interval: int = 2000

    def update(self, finite: bool) -> None:
        """Halve the scale after an overflow, double it after `growth_interval` updates without one."""
        self.streak = self.streak + 1 if finite else 0
        if not finite:
            self.scale = max(self.scale / 2, 1.0)
        elif self.streak == self.growth_interval:
            self.scale, self.streak = self.scale * 2, 0

    def state(self) -> dict[str, float]:
        """What a checkpoint keeps."""
        return {"scale": self.scale, "streak": self.streak}

    def load(self, state: Mapping[str, float]) -> None:
        """The inverse of `state`."""
        self.scale, self.streak = float(state["scale"]), int(state["streak"])


class Precision:
    """How a model's forward pass is computed on a device.

    Args:
        name: one of `PRECISIONS`.
        device: where.

    Raises:
        UsageError: the name is unknown, or the device cannot do it.
    """

    def __init__(self, name: str, device: torch.device) -> None:
        if name not in PRECISIONS:
            raise UsageError(f"precision is one of {', '.join(PRECISIONS)}, got {name!r}")
        if name == "tf32" and (
            device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 0)
        ):
            raise UsageError("tf32 needs an NVIDIA GPU of compute capability 8.0 or later")
        self.name, self.device = name, device
        self.scaler = LossScaler() if name == "fp16" else None

    @property
    def scale(self) -> float:
        """What the loss is multiplied by before backward."""
        return self.scaler.scale if self.scaler else 1.0

    def autocast(self) -> AbstractContextManager[Any]:
        """The context of the forward pass and the loss."""
        if self.name not in _AUTOCAST:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=_AUTOCAST[self.name])


def wide(tensor: Tensor) -> Tensor:
    """The same numbers in fp32, or in fp64 where they are that already."""
    return tensor if tensor.dtype is torch.float64 else tensor.float()


@contextmanager
def weights_in(precision: str) -> Iterator[None]:
    """Build models, and whatever else asks for no format, in fp64 where that is the precision."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if precision == "fp64" else torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def matmul_precision(precision: str, option: str | None) -> Iterator[None]:
    """Set how float32 matrix products are computed, and put it back afterwards.

    Args:
        precision: of the trial; tf32 is "high".
        option: "highest", "high" or "medium" where it was asked for. On CPUs without bf16 or tf32 units "medium"
            selects oneDNN's kernels, which still multiply in fp32.
    """
    wanted = option or ("high" if precision == "tf32" else "highest")
    if wanted not in MATMUL_PRECISIONS:
        raise UsageError(
            f"matmul_precision is one of {', '.join(MATMUL_PRECISIONS)}, got {wanted!r}"
        )
    before, cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision(wanted)
    torch.backends.cudnn.allow_tf32 = wanted != "highest"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        torch.backends.cudnn.allow_tf32 = cudnn
