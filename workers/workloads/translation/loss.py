"""Label-smoothed cross-entropy in few passes over the logits, which dominate memory traffic on CPUs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Sum over rows of -(1 - e) log p(label) - e/v sum over classes of log p, p the softmax of the logits."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        logs = torch.log_softmax(logits, dim=-1, dtype=torch.float32)
        ctx.save_for_backward(logs, labels)
        ctx.smoothing, ctx.dtype = smoothing, logits.dtype
        loss = logs.gather(1, labels[:, None]).sum() * (smoothing - 1)
        return loss - logs.sum() * (smoothing / logs.shape[1]) if smoothing else loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        logs, labels = ctx.saved_tensors
        gradient = logs.exp()
        if ctx.smoothing:
            gradient.sub_(ctx.smoothing / logs.shape[1])
        gradient.scatter_add_(1, labels[:, None], gradient.new_full((len(labels), 1), ctx.smoothing - 1))
        return gradient.mul_(grad).to(ctx.dtype), None, None


def smoothed_cross_entropy(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Summed cross-entropy, scalar, of logits (n, v) against labels (n,) of which a share `smoothing` is spread evenly.

    Szegedy et al. 2016 (https://arxiv.org/abs/1512.00567), section 7. Computed in fp32; differentiable once.
    """
    loss: Tensor = _SmoothedCrossEntropy.apply(logits, labels, smoothing)  # type: ignore[no-untyped-call]
    return loss
