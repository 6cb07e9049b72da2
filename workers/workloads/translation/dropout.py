"""Dropout that is cheap on CPUs, which need more time for a random float than for a product."""

import torch
from torch import Tensor, nn

from workers.device.planned import device_type


class Dropout(nn.Module):
    """Zero each element with probability p and scale the rest (Srivastava et al. 2014).

    On CPUs one random byte decides per element: p is rounded to a multiple of 1/256, and the scale
    fits the rounded value.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def extra_repr(self) -> str:
        """The probability."""
        return f"p={self.p}"

    def forward(self, x: Tensor) -> Tensor:
        """Apply dropout to a tensor of any shape."""
        mask = self._mask(x)
        return nn.functional.dropout(x, self.p, self.training) if mask is None else x * mask

    def add(self, residual: Tensor, x: Tensor) -> Tensor:
        """`residual` plus x under dropout; both have the same shape."""
        mask = self._mask(x)
        if mask is None:
            return residual + nn.functional.dropout(x, self.p, self.training)
        return torch.addcmul(residual, x, mask)

    def _mask(self, x: Tensor) -> Tensor | None:
        """Factors of the elements; None if torch's own dropout, or none, is better."""
        if not self.training or device_type(x) != "cpu" or torch.compiler.is_compiling():
            return None
        dropped = round(self.p * 256)
        return random_mask(x, dropped) if 0 < dropped < 256 else None


@torch.no_grad()
def random_mask(x: Tensor, dropped: int) -> Tensor:
    """A mask like x: 0 with probability `dropped` / 256, else 256 / (256 - dropped)."""
    words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
    bytes_ = words.view(torch.int8)[: x.numel()].view(x.shape)
    kept = torch.empty(x.shape, dtype=x.dtype)
    torch.ge(bytes_, dropped - 128, out=kept)
    return kept.mul_(256 / (256 - dropped))
