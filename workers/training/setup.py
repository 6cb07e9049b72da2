"""Setting up a training: process-wide switches of torch, and the model."""

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
from search_spaces.knobs.precision import PRECISION
from search_spaces.knobs.runtime import (
    ACTIVATION_CHECKPOINTING,
    COMPACT_MEMORY,
    COMPILE,
    CUDNN_AUTOTUNE,
    MATMUL_PRECISION,
    MEMORY_FORMAT,
    THREADS,
)
from workers.device.peak_memory import allocate_by
from workers.device.precision import matmul_precision, weights_in
from workers.workload import Trainable

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
def switches(values: Mapping[str, Any], threads: int) -> Iterator[None]:
    """Set threads, matrix products, cuDNN and the allocator, and enter the contexts of knobs.

    Args:
        values: of every option of the trial.
        threads: of this rank, unless the option `threads` is set.
    """
    precision = PRECISION.value(values)
    before = torch.get_num_threads()
    autotune = torch.backends.cudnn.benchmark
    torch.set_num_threads(max(1, THREADS.value(values) or threads))
    torch.backends.cudnn.benchmark = CUDNN_AUTOTUNE.value(values)
    allocate_by(*((1 << 17, 1 << 18) if COMPACT_MEMORY.value(values) else (32 << 20, 1 << 30)))
    try:
        with ExitStack() as stack:
            stack.enter_context(matmul_precision(precision, MATMUL_PRECISION.value(values)))
            stack.enter_context(weights_in(precision))
            for name in KNOBS.names():
                stack.enter_context(KNOBS.get(name)().applied(values))
            yield
    finally:
        torch.set_num_threads(before)
        torch.backends.cudnn.benchmark = autotune
        allocate_by(32 << 20, 64 << 20)


def build_model(
    workload: Trainable, values: Mapping[str, Any], device: torch.device, seed: int
) -> nn.Module:
    """The workload's model in train mode on the device; its weights are a function of the seed."""
    torch.manual_seed(seed)
    with weights_in("fp32"):  # the same numbers under every precision
        model = workload.build_model()
    model.to(device, torch.get_default_dtype())
    channels_last = MEMORY_FORMAT.value(values) == "channels_last"
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    for parameter in model.parameters():
        if parameter.ndim == 4:
            parameter.data = parameter.data.contiguous(memory_format=memory_format)
    recompute(model, workload.plan(model).layers, values)
    mode = COMPILE.value(values)
    if mode != "off":
        model.compile(mode=mode)
    return model.train()


def recompute(model: nn.Module, layers: tuple[str, ...], values: Mapping[str, Any]) -> None:
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
    mode = ACTIVATION_CHECKPOINTING.value(values)
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
