"""Setting up a training: process-wide switches of torch, the ranks' strategy, and the model."""

import functools
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import count
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils.stateless import _reparametrize_module
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from search_spaces.errors import UsageError
from search_spaces.knobs import KNOBS
from search_spaces.knobs.parallelism import PARALLELISM
from search_spaces.knobs.table import (
    ACCUMULATION,
    ACTIVATION_CHECKPOINTING,
    CHECKPOINT_EVERY,
    COMPACT_MEMORY,
    COMPILE,
    COMPILE_SCOPE,
    MATMUL_PRECISION,
    MEMORY_FORMAT,
    PRECISION,
    RECORDS_GRAPHS,
    SPARSE_GRADIENTS,
    THREADS,
)
from workers.context import Context
from workers.device.peak_memory import allocate_by
from workers.device.precision import compile_module, matmul_precision, weights_in
from workers.parallel import STRATEGIES
from workers.parallel.base import Strategy
from workers.parallel.mesh import BACKEND, Mesh
from workers.ranks import connect, disconnect
from workers.workload import ParallelPlan, Trainable

NEEDS_BLOCKS = (
    "needs the blocks of the model: the members of a torch.nn.ModuleList or Sequential, or those "
    "that the plan of a workload names"
)
_MATRIX_PRODUCTS = [
    torch.ops.aten.mm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten.bmm.default,
    torch.ops.aten.baddbmm.default,
    torch.ops.aten.convolution.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
]


@contextmanager
def switches(
    values: Mapping[str, Any], threads: int, device: torch.device | str = "cpu"
) -> Iterator[None]:
    """Set threads, matrix products and the allocator, and enter the contexts of knobs.

    Args:
        values: of every option of the trial.
        threads: of this rank, unless the option `threads` is set.
        device: of this rank.
    """
    precision = PRECISION.value(values)
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, THREADS.value(values) or threads))
    allocate_by(*((1 << 17, 1 << 18) if COMPACT_MEMORY.value(values) else (32 << 20, 1 << 30)))
    try:
        with ExitStack() as stack:
            if {PRECISION.name, MATMUL_PRECISION.name} & values.keys():  # else the process's own
                wanted = MATMUL_PRECISION.value(values)
                stack.enter_context(matmul_precision(precision, wanted, device))
                stack.enter_context(weights_in(precision))
            for name in KNOBS.names():
                stack.enter_context(KNOBS.get(name)().applied(values))
            yield
    finally:
        torch.set_num_threads(before)
        allocate_by(32 << 20, 64 << 20)


@contextmanager
def strategy_of(
    context: Context, workload: Any, values: Mapping[str, Any], threads: int
) -> Iterator[Strategy]:
    """Meet the other ranks, under `switches`, and make the strategy of the trial.

    Ranks of which one has failed do not wait for each other: their processes end soon.

    Args:
        context: of the trial.
        workload: a `Trainable`, or what else has a `plan`.
        values: of every option of the trial.
        threads: see `switches`.

    Raises:
        UsageError: the strategy cannot run on these ranks.
    """
    device, ranks = torch.device(context.device), context.world_size
    with switches(values, threads, device):
        if ranks > 1 and not dist.is_initialized():
            backend = str(BACKEND.value(values))
            connect(context.rank, ranks, context.rendezvous, device, backend)
        kind: Any = STRATEGIES.get(PARALLELISM.value(values))
        mesh = Mesh(context.rank, ranks, **kind.degrees(ranks, values))
        yield kind(mesh, workload, device, values)
        if ranks > 1:
            disconnect()


def build_model(
    workload: Trainable, values: Mapping[str, Any], device: torch.device, seed: int
) -> nn.Module:
    """The workload's model in train mode on the device; its weights are a function of the seed.

    Args:
        workload: whose model is built.
        values: of every option of the trial.
        device: of the model.
        seed: of the weights.

    Raises:
        UsageError: the plan lacks what an option needs.
    """
    torch.manual_seed(seed)
    with weights_in("fp32"):  # the same numbers under every precision
        model = workload.build_model()
    model.to(device, torch.get_default_dtype())
    plan = workload.plan(model)
    if SPARSE_GRADIENTS.value(values):
        if not plan.embeddings:
            raise UsageError("sparse_gradients needs a workload whose plan names embeddings")
        for name in plan.embeddings:
            model.get_submodule(name).sparse = True  # type: ignore[assignment]
    arrange(model, plan, values)
    return model.train()


def arrange(model: nn.Module, plan: ParallelPlan, values: Mapping[str, Any]) -> None:
    """Lay the weights out, and recompute and compile the model, as the options say.

    Args:
        model: changed in place.
        plan: of the model.
        values: of every option of the trial.

    Raises:
        UsageError: the plan lacks what an option needs.
    """
    last = MEMORY_FORMAT.value(values) == "channels_last"
    for parameter in model.parameters():
        if parameter.ndim == 4:
            parameter.data = parameter.data.contiguous(
                memory_format=torch.channels_last if last else torch.contiguous_format
            )
    for name in KNOBS.names():
        KNOBS.get(name)().change(model, values)
    recompute(model, plan.layers, values)
    compile_model(model, plan.layers, values)


def compiles_by_shape(values: Mapping[str, Any], device: str) -> bool:
    """Whether each shape of a batch may cost a graph, so that few shapes are better.

    On CPUs compiled code for shapes of any size is as fast.

    Args:
        values: of every option of the trial.
        device: type of the device.
    """
    return device == "cuda" and COMPILE.value(values) != "off"


def compile_model(model: nn.Module, layers: tuple[str, ...], values: Mapping[str, Any]) -> None:
    """Let `torch.compile` compile the model, or each of its layers, if the options say so.

    Args:
        model: changed in place.
        layers: dotted names within the model.
        values: of every option of the trial.

    Raises:
        UsageError: the workload's plan names no layer, or CUDA graphs would be recorded for batches
            in parts: the gradients of a part would lie where the next part writes its own.
    """
    mode = COMPILE.value(values)
    if mode == "off":
        return
    if mode in RECORDS_GRAPHS and ACCUMULATION.value(values) > 1:
        raise UsageError(
            f"compile {mode!r} records CUDA graphs, which cannot accumulate gradients: "
            f"accumulation must be 1, got {ACCUMULATION.value(values)}"
        )
    parts = [model]
    if COMPILE_SCOPE.value(values) == "layers":
        if not layers:
            raise UsageError(f"compile_scope layers {NEEDS_BLOCKS}")
        parts = [model.get_submodule(name) for name in layers]
    for part in parts:
        compile_module(part, mode)


def recompute(model: nn.Module, layers: tuple[str, ...], values: Mapping[str, Any]) -> None:
    """Let layers recompute their activations in backward.

    Source: Chen et al. 2016 (https://arxiv.org/abs/1604.06174).

    Args:
        model: whose layers are changed in place.
        layers: dotted names within the model.
        values: `activation_checkpointing` is "none", "layers" (everything) or "selective"
            (everything but matrix products and attention); `checkpoint_every` is 2 for every second
            layer.

    Raises:
        UsageError: the workload's plan names no layer.
    """
    mode = ACTIVATION_CHECKPOINTING.value(values)
    if mode == "none":
        return
    if not layers:
        raise UsageError(f"activation_checkpointing {mode} {NEEDS_BLOCKS}")
    options: dict[str, Any] = {"use_reentrant": False}
    if mode == "selective":
        saves = functools.partial(create_selective_checkpoint_contexts, _MATRIX_PRODUCTS)
        options["context_fn"] = saves
    for name in layers[:: int(CHECKPOINT_EVERY.value(values))]:
        layer = model.get_submodule(name)
        layer.forward = functools.partial(_recomputed, layer, layer.forward, options)


def _recomputed(
    layer: nn.Module, forward: Any, options: dict[str, Any], *args: Any, **kwargs: Any
) -> Any:
    """The output of a layer, whose second forward pass neither sees nor changes what the first
    has made of its buffers, such as the statistics of a batch norm.
    """
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    before = {name: one.clone() for name, one in layer.named_buffers()} if layer.training else {}
    if torch.compiler.is_compiling() or not before:  # a compiler records changes once
        return checkpoint(forward, *args, **options, **kwargs)
    passes = count()

    def compute(*args: Any, **kwargs: Any) -> Any:
        with _reparametrize_module(layer, before) if next(passes) else nullcontext():
            return forward(*args, **kwargs)

    return checkpoint(compute, *args, **options, **kwargs)
