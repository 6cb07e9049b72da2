"""Number formats of training: fp32, tf32, bf16, and fp16 with dynamic loss scaling.

Master weights stay fp32. fp64 is not tuned: it tells rounding errors from mistakes
(benchmarks/training/strategies.py).
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from search_spaces.errors import UsageError
from search_spaces.knobs.precision import PRECISION
from search_spaces.knobs.runtime import MATMUL_PRECISION

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass
class LossScaler:
    """Dynamic loss scaling for fp16 (Micikevicius et al. 2018, https://arxiv.org/abs/1710.03740).

    The constants are those of `torch.amp.GradScaler`. That class finds an overflow in the gradients
    of one rank. This one uses the global norm, so that ranks with different shards skip the same
    updates.

    Args:
        scale: the factor of the loss.
        streak: updates in a row without an overflow.
        growth_interval: the scale is doubled after so many of them.
    """

    scale: float = 65536.0
    streak: int = 0
    growth_interval: int = 2000

    def update(self, finite: bool) -> None:
        """Halve the scale after an overflow, double it after `growth_interval` good updates."""
        self.streak = self.streak + 1 if finite else 0
        if not finite:
            self.scale = max(self.scale / 2, 1.0)
        elif self.streak == self.growth_interval:
            self.scale *= 2
            self.streak = 0

    def state(self) -> dict[str, float]:
        """The state that a checkpoint keeps."""
        return {"scale": self.scale, "streak": self.streak}

    def load(self, state: Mapping[str, float]) -> None:
        """The inverse of `state`."""
        self.scale = float(state["scale"])
        self.streak = int(state["streak"])


class Precision:
    """The number format of a model's forward pass on a device.

    Args:
        name: a value of option `precision`.
        device: of the model.

    Raises:
        UsageError: the name is unknown, or the device cannot compute in it.
    """

    def __init__(self, name: str, device: torch.device) -> None:
        PRECISION.checked(name)
        if name == "tf32" and (
            device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 0)
        ):
            raise UsageError("tf32 needs an NVIDIA GPU of compute capability 8.0 or later")
        self.name = name
        self.device = device
        self.scaler = LossScaler() if name == "fp16" else None

    @property
    def scale(self) -> float:
        """The factor of the loss before backward."""
        return self.scaler.scale if self.scaler else 1.0

    def autocast(self) -> AbstractContextManager[Any]:
        """The context of the forward pass and the loss."""
        if self.name not in _AUTOCAST:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=_AUTOCAST[self.name])


def wide(tensor: Tensor) -> Tensor:
    """The same numbers in fp32; fp64 stays fp64."""
    return tensor if tensor.dtype is torch.float64 else tensor.float()


@contextmanager
def weights_in(precision: str) -> Iterator[None]:
    """Make fp64 torch's default format if that is the precision, else fp32."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if precision == "fp64" else torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def matmul_precision(precision: str, option: str | None) -> Iterator[None]:
    """Set the precision of float32 matrix products, and restore it afterwards.

    Args:
        precision: of the trial; tf32 means "high".
        option: "highest", "high", "medium", or None for the precision's own. On CPUs without units
            for bf16 or tf32, "medium" selects oneDNN's kernels, which still multiply in fp32.

    Raises:
        UsageError: the option has no such value.
    """
    wanted = MATMUL_PRECISION.checked(option) or ("high" if precision == "tf32" else "highest")
    before = torch.get_float32_matmul_precision()
    cudnn = torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision(wanted)
    torch.backends.cudnn.allow_tf32 = wanted != "highest"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        torch.backends.cudnn.allow_tf32 = cudnn
