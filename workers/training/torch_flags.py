"""Process-wide switches of torch, which are set for one trial and restored after it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from search_spaces.errors import UsageError
from search_spaces.knobs import KNOBS
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
def switches(settings: Settings, threads: int, values: Mapping[str, Any]) -> Iterator[None]:
    """Set threads, matrix products, cuDNN and the allocator, and enter the contexts of knobs.

    Args:
        settings: of the trial.
        threads: of this rank, unless the settings give a number.
        values: of every option of the trial, for `Knob.applied`.
    """
    before = torch.get_num_threads()
    autotune = torch.backends.cudnn.benchmark
    torch.set_num_threads(max(1, settings.threads or threads))
    torch.backends.cudnn.benchmark = settings.cudnn_autotune
    allocate_by(*((1 << 17, 1 << 18) if settings.compact_memory else (32 << 20, 1 << 30)))
    try:
        with ExitStack() as stack:
            stack.enter_context(matmul_precision(settings.precision, settings.matmul_precision))
            stack.enter_context(weights_in(settings.precision))
            for name in KNOBS.names():
                stack.enter_context(KNOBS.get(name)().applied(values))
            yield
    finally:
        torch.set_num_threads(before)
        torch.backends.cudnn.benchmark = autotune
        allocate_by(32 << 20, 64 << 20)


def recompute(model: nn.Module, layers: tuple[str, ...], mode: str) -> None:
    """Let layers recompute their activations in backward.

    Source: Chen et al. 2016 (https://arxiv.org/abs/1604.06174).

    Args:
        model: whose layers are changed in place.
        layers: dotted names within the model.
        mode: "none", "layers" (everything) or "selective" (everything but matrix products and
            attention).

    Raises:
        UsageError: the workload's plan names no layer.
    """
    if mode == "none":
        return
    if not layers:
        raise UsageError("activation_checkpointing needs a workload whose plan names its layers")
    options: dict[str, Any] = {"use_reentrant": False}
    if mode == "selective":
        options["context_fn"] = functools.partial(create_selective_checkpoint_contexts, _policy)
    for name in layers:
        layer = model.get_submodule(name)
        layer.forward = functools.partial(_recomputed, layer.forward, options)


def _recomputed(forward: Any, options: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    return checkpoint(forward, *args, **options, **kwargs)


def _policy(context: Any, operation: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    saved = operation in _MATRIX_PRODUCTS
    return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE
