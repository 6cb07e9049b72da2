"""The recurrence h[t] = a[t] h[t-1] + b[t] for all steps at once, in log2(steps) passes."""

from typing import Any, cast

import torch
from torch import Tensor


def _scan(a: Tensor, b: Tensor) -> Tensor:
    """The recurrence by doubling: after pass k each step covers the 2^k steps before it.

    Hillis and Steele 1986.
    """
    shift = 1
    steps = a.shape[0]
    while shift < steps:
        b = torch.cat([b[:shift], torch.addcmul(b[shift:], a[shift:], b[:-shift])])
        a = torch.cat([a[:shift], a[shift:] * a[:-shift]])
        shift *= 2
    return b


class _LinearScan(torch.autograd.Function):
    """`_scan` with a backward pass that is the same recurrence in reversed time.

    Only a and h are stored.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        """a, b and the result have shape (steps, ...); h[-1] is 0."""
        h = _scan(a, b)
        ctx.save_for_backward(a, h)
        return h

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of a and b; differentiable again."""
        a, h = ctx.saved_tensors
        later = torch.cat([a[1:], torch.zeros_like(a[:1])])  # a[t + 1], 0 at the end
        grad_b = linear_scan(later.flip(0), gradients[0].flip(0)).flip(0)
        before = torch.cat([torch.zeros_like(h[:1]), h[:-1]])  # h[t - 1], 0 at the beginning
        return grad_b * before, grad_b


def linear_scan(a: Tensor, b: Tensor) -> Tensor:
    """h with h[t] = a[t] h[t-1] + b[t] and h[-1] = 0.

    Args:
        a: factors, shape (steps, ...); stable if they are at most 1 in magnitude.
        b: inputs, the same shape.

    Returns:
        h, the same shape.

    Example:
        >>> linear_scan(torch.full((3,), 0.5), torch.ones(3))
        tensor([1.0000, 1.5000, 1.7500])
    """
    if not torch.is_grad_enabled():
        return _scan(a, b)
    return cast(Tensor, _LinearScan.apply(a, b))  # type: ignore[no-untyped-call]
