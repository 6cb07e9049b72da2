"""The recurrence h[t] = a[t] h[t-1] + b[t] over all steps at once, in log2(steps) passes over the tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def _scan(a: Tensor, b: Tensor) -> Tensor:
    """The recurrence by doubling (Hillis and Steele 1986): after pass k each step covers 2^k steps before it."""
    shift, steps = 1, a.shape[0]
    while shift < steps:
        b = torch.cat([b[:shift], torch.addcmul(b[shift:], a[shift:], b[:-shift])])
        a = torch.cat([a[:shift], a[shift:] * a[:-shift]])
        shift *= 2
    return b


class _LinearScan(torch.autograd.Function):
    """`_scan` with a backward pass that is the same recurrence in reversed time: nothing but a and h is kept."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        """Shapes (steps, ...) of a, b and the result; h[-1] is 0."""
        h = _scan(a, b)
        ctx.save_for_backward(a, h)
        return h

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of a and b; differentiable again."""
        a, h = ctx.saved_tensors
        later = functional.pad(a[1:], _pad_front(a.ndim, back=True))  # a[t + 1], 0 at the end
        grad_b = linear_scan(later.flip(0), gradients[0].flip(0)).flip(0)
        before = functional.pad(
            h[:-1], _pad_front(h.ndim, back=False)
        )  # h[t - 1], 0 at the beginning
        return grad_b * before, grad_b


def _pad_front(ndim: int, *, back: bool) -> list[int]:
    return [0, 0] * (ndim - 1) + ([0, 1] if back else [1, 0])


def linear_scan(a: Tensor, b: Tensor) -> Tensor:
    """h with h[t] = a[t] h[t-1] + b[t] and h[-1] = 0.

    Args:
        a: factors, shape (steps, ...), at most 1 in magnitude for a stable result.
        b: inputs, the same shape.

    Returns:
        h, the same shape.

    Example:
        >>> linear_scan(torch.full((3,), 0.5), torch.ones(3))
        tensor([1.0000, 1.5000, 1.7500])
    """
    if not torch.is_grad_enabled():
        return _scan(a, b)
    result: Tensor = _LinearScan.apply(a, b)  # type: ignore[no-untyped-call]
    return result
