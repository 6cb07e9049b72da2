"""Label-smoothed cross-entropy, from logits or without storing them."""

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from workers.device.precision import device_type

PAD = 0
_CHUNK = {"cpu": 256}  # rows of logits computed at once, which stay in the processor's cache
_LARGE_CHUNK = 4096  # elsewhere: enough rows to keep a GPU busy


def real_positions(labels: Tensor, num_real: int | None = None) -> Tensor:
    """Positions (n,) of the labels (b, t) that are not padding, among all b * t.

    Args:
        labels: padded behind the last label of a row.
        num_real: n. If the host knows it, it does not wait for a GPU to count.
    """
    real = labels != PAD
    if num_real is None:
        return real.flatten().nonzero().squeeze(1)
    rows, width = labels.shape
    lengths = real.sum(1)
    skipped = torch.arange(rows, device=labels.device) * width - lengths.cumsum(0) + lengths
    shift = torch.repeat_interleave(skipped, lengths, output_size=num_real)
    return torch.arange(num_real, device=labels.device) + shift


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Summed cross-entropy with label smoothing (Szegedy et al. 2016, section 7).

    https://arxiv.org/abs/1512.00567. Computed in fp32; differentiable once.

    Args:
        logits: (n, v).
        labels: (n,); those that are padding do not count.
        smoothing: the share of the probability that is spread evenly over all classes.

    Returns:
        A scalar.
    """
    return cast(Tensor, _CrossEntropy.apply(logits, labels, smoothing))  # type: ignore[no-untyped-call]


class _CrossEntropy(torch.autograd.Function):
    """See `cross_entropy`; torch's own keeps the logits in fp32 beside their logarithms."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        logs, real = torch.log_softmax(logits, dim=-1, dtype=_full(logits)), labels != PAD
        ctx.save_for_backward(logs, labels)
        ctx.smoothing, ctx.dtype = smoothing, logits.dtype
        loss = (smoothing - 1) * logs.gather(1, labels[:, None]).squeeze(1)
        if smoothing:
            loss -= smoothing * logs.mean(1)
        return loss.masked_fill_(~real, 0.0).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        logs, labels = ctx.saved_tensors
        gradient = logs.exp().sub_(ctx.smoothing / logs.shape[1])
        picked = gradient.new_full((len(labels), 1), ctx.smoothing - 1)
        gradient.scatter_add_(1, labels[:, None], picked)
        gradient.masked_fill_((labels == PAD)[:, None], 0.0)
        return gradient.mul_(grad).to(ctx.dtype), None, None


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
        chunk = _CHUNK.get(device_type(hidden), _LARGE_CHUNK)
        for begin in range(0, len(hidden), chunk):
            part = rows[begin : begin + chunk]
            label = labels[begin : begin + chunk, None]
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
            to_hidden[begin : begin + chunk] = torch.mm(gradient, small) * inverse
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
    """`cross_entropy` of the logits hidden @ weight.T, without storing them.

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
