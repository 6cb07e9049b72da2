"""Process-wide switches of torch, set for one trial and put back after it: workers are reused."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from search_spaces.errors import UsageError
from workers.device.peak_memory import allocate_by
from workers.device.precision import matmul_precision, weights_in

from .settings import Settings

_MATRIX_PRODUCTS = frozenset(
    {
        torch.ops.aten.mm.default,
        torch.ops.aten.addmm.default,
        torch.ops.aten.bmm.default,
        torch.ops.aten.baddbmm.default,
        torch.ops.aten.convolution.default,
        torch.ops.aten._scaled_dot_product_flash_attention.default,
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
        torch.ops.aten._scaled_dot_product_efficient_attention.default,
    }
)


@contextmanager
def switches(settings: Settings, threads: int) -> Iterator[None]:
    """Threads, float32 matrix products and cuDNN as the settings say."""
    before, autotune = torch.get_num_threads(), torch.backends.cudnn.benchmark
    torch.set_num_threads(max(1, settings.threads or threads))
    torch.backends.cudnn.benchmark = settings.cudnn_autotune
    allocate_by(*((1 << 17, 1 << 18) if settings.compact_memory else (32 << 20, 1 << 30)))
    try:
        with (
            matmul_precision(settings.precision, settings.matmul_precision),
            weights_in(settings.precision),
        ):
            yield
    finally:
        torch.set_num_threads(before)
        torch.backends.cudnn.benchmark = autotune
        allocate_by(32 << 20, 64 << 20)


def recompute(model: nn.Module, layers: tuple[str, ...], how: str) -> None:
    """Have layers recompute their activations in backward (Chen et al. 2016, https://arxiv.org/abs/1604.06174).

    Args:
        layers: dotted names within the model.
        how: "none", "layers" (everything) or "selective" (everything but matrix products and attention).

    Raises:
        UsageError: the workload's plan names no layer.
    """
    if how == "none":
        return
    if not layers:
        raise UsageError("activation_checkpointing needs a workload whose plan names its layers")
    options: dict[str, Any] = {"use_reentrant": False}
    if how == "selective":
        options["context_fn"] = functools.partial(create_selective_checkpoint_contexts, _policy)
    for name in layers:
        layer = model.get_submodule(name)
        layer.forward = functools.partial(_recomputed, layer.forward, options)


def _recomputed(forward: Any, options: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    return checkpoint(forward, *args, **options, **kwargs)


def _policy(context: Any, operation: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    return (
        CheckpointPolicy.MUST_SAVE
        if operation in _MATRIX_PRODUCTS
        else CheckpointPolicy.PREFER_RECOMPUTE
    )
