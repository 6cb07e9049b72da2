"""Label-smoothed cross-entropy with few passes over the logits, which saves memory traffic."""

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_CHUNK = 256  # rows of logits computed at once


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Sum over rows of -(1 - e) log p(label) - e/v sum of log p, with p = softmax(logits)."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        logs = torch.log_softmax(logits, dim=-1, dtype=_full(logits))
        ctx.save_for_backward(logs, labels)
        ctx.smoothing = smoothing
        ctx.dtype = logits.dtype
        loss = logs.gather(1, labels[:, None]).sum() * (smoothing - 1)
        return loss - logs.sum() * (smoothing / logs.shape[1]) if smoothing else loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        logs, labels = ctx.saved_tensors
        gradient = logs.exp()
        if ctx.smoothing:
            gradient.sub_(ctx.smoothing / logs.shape[1])
        gradient.scatter_add_(
            1, labels[:, None], gradient.new_full((len(labels), 1), ctx.smoothing - 1)
        )
        return gradient.mul_(grad).to(ctx.dtype), None, None


def smoothed_cross_entropy(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Summed cross-entropy with label smoothing (Szegedy et al. 2016, section 7).

    https://arxiv.org/abs/1512.00567. Computed in fp32; differentiable once.

    Args:
        logits: (n, v).
        labels: (n,).
        smoothing: the share of the probability that is spread evenly over all classes.

    Returns:
        A scalar.
    """
    return cast(Tensor, _SmoothedCrossEntropy.apply(logits, labels, smoothing))  # type: ignore[no-untyped-call]


class _LinearSmoothedCrossEntropy(torch.autograd.Function):
    """See `linear_cross_entropy`; computes the gradients with the loss, chunk by chunk."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        labels: Tensor,
        smoothing: float,
        dtype: torch.dtype,
    ) -> Tensor:
        classes = len(weight)
        small = weight.to(dtype)
        rows = hidden.to(dtype)
        full = _full(weight)
        to_hidden = torch.empty(hidden.shape, dtype=full, device=hidden.device)
        to_weight = torch.zeros(weight.shape, dtype=full, device=weight.device)
        loss = torch.zeros((), dtype=full, device=hidden.device)
        column = weight.to(full).sum(0) * (smoothing / classes)
        for begin in range(0, len(hidden), _CHUNK):
            part = rows[begin : begin + _CHUNK]
            label = labels[begin : begin + _CHUNK, None]
            logits = torch.mm(part, small.t()).to(full)
            most = logits.amax(1, keepdim=True)
            logits.sub_(most)
            loss += (smoothing - 1) * logits.gather(1, label).sum() + smoothing * most.sum()
            total = logits.exp_().sum(1, keepdim=True)
            loss += total.log().sum()
            # Dividing the narrow factors of the two products replaces dividing each row of logits.
            logits.scatter_add_(1, label, total * (smoothing - 1))
            gradient = logits.to(dtype)
            inverse = 1 / total
            to_hidden[begin : begin + _CHUNK] = torch.mm(gradient, small) * inverse
            scaled = (part * inverse).to(dtype)
            if dtype == full:
                to_weight.addmm_(gradient.t(), scaled)
            else:
                to_weight.add_(torch.mm(gradient.t(), scaled))
        if smoothing:  # the evenly spread share is the same for every class
            loss -= (rows.to(full) @ column).sum()
            to_hidden.sub_(column)
            to_weight.sub_(rows.to(full).sum(0) * (smoothing / classes))
        ctx.save_for_backward(to_hidden, to_weight)
        ctx.dtypes = hidden.dtype, weight.dtype
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        to_hidden, to_weight = ctx.saved_tensors
        hidden, weight = ctx.dtypes
        return (to_hidden * grad).to(hidden), (to_weight * grad).to(weight), None, None, None


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float
) -> Tensor:
    """`smoothed_cross_entropy` of the logits hidden @ weight.T, without storing them.

    One chunk of rows at a time stays in the processor's cache, from the logits to the gradients of
    both factors (the idea of Wijmans et al. 2024, https://arxiv.org/abs/2411.09009). Products use
    the format of autocast, all else fp32; differentiable once.

    Args:
        hidden: (n, width).
        weight: (v, width).
        labels: (n,).
    """
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else _full(weight)
    with torch.autocast(device, enabled=False):
        apply: Any = _LinearSmoothedCrossEntropy.apply
        return cast(Tensor, apply(hidden, weight, labels, smoothing, dtype))


def _full(tensor: Tensor) -> torch.dtype:
    """The format of sums: fp32, or fp64 for an fp64 model."""
    return torch.promote_types(tensor.dtype, torch.float32)
