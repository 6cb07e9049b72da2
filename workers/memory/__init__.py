"""Peak memory of a configuration before it is dispatched: two updates on fake tensors.

Fake tensors have shapes and no memory. The estimate imitates one rank on the model itself: the
strategy cuts the model (`Strategy.imitate`), and a `shard` axis of its mesh leaves the shards and
the layers that are gathered at a time. Stages of a pipeline are not estimated.

Memory beside the tensors is added. Its terms for CPUs were measured by
benchmarks/training/memory.py. Those for GPUs are documented or guessed; benchmarks/training/gpu.py
compares them with a GPU.

`main` is a process that estimates for a controller. It reads lines of JSON and writes lines of
JSON. The first line has the keys `workload`, `data`, `fixed` and `device`. Each later line is a
configuration: `key`, `params`, `ranks`. The answer has `key` and the fields of `Estimate`, or `key`
and `error`. The process ends with its standard input, and so with the controller.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any, Final, TextIO

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from search_spaces.errors import UsageError
from search_spaces.knobs.parallelism import PARALLELISM
from search_spaces.knobs.table import ACCUMULATION, PRECISION, SPARSE_GRADIENTS
from workers.batches import Batch
from workers.device.peak_memory import CONTEXT_BYTES, Contributions
from workers.device.precision import HALF, AutocastOfCuda, LiveStorages, Precision, planned_for
from workers.failures import one_line
from workers.parallel import STRATEGIES
from workers.parallel.mesh import AXES, Mesh
from workers.parallel.strategies.fsdp import RESHARD_AFTER_FORWARD
from workers.training import Settings, options
from workers.training.optimizers import build_optimizer, step
from workers.training.setup import compiles_by_shape, recompute
from workers.workload import Trainable
from workers.workloads import WORKLOADS

CPU_BYTES: Final = 3_000_000  # libraries and threads of the first update
CPU_HALF_BYTES: Final = 28_000_000  # oneDNN's kernels and reordered weights for half precisions
CPU_RANKS_BYTES: Final = 12_000_000  # the process group

# Workspace that NVIDIA advises for Hopper, the largest (cublasSetWorkspace, cuBLAS documentation).
CUBLAS_BYTES: Final = 32 << 20
# NCCL's buffer of a channel to a peer (NCCL_BUFFSIZE, https://docs.nvidia.com/deeplearning/nccl).
NCCL_BUFFER_BYTES: Final = 4 << 20
NCCL_CHANNELS: Final = 16  # of a communicator between GPUs that NVLink joins
NCCL_PEERS: Final = 2  # a ring has two neighbours
GPU_SHARE: Final = 0.1  # free pieces in the allocator, as a share of the peak


def gpu_bytes(peak: int, mesh: Mesh) -> int:
    """On a GPU, where it does not count as memory of the trial, but has to fit.

    The CUDA context, the workspace of cuBLAS, the buffers of NCCL for each axis of the mesh, and
    pieces of memory that the allocator has reserved and cannot use.

    Args:
        peak: of the tensors.
        mesh: of the trial.
    """
    peers = sum(min(int(getattr(mesh, axis)) - 1, NCCL_PEERS) for axis in AXES)
    buffers = peers * NCCL_CHANNELS * 2 * NCCL_BUFFER_BYTES  # to send and to receive
    return CONTEXT_BYTES + CUBLAS_BYTES + buffers + int(peak * GPU_SHARE)


_MAX_BATCHES = 50  # the largest of this many batches stands for all


@dataclass(frozen=True)
class Estimate:
    """Peak memory of the rank that needs most.

    Args:
        peak_bytes: above the memory of the process before the trial.
        parts: of the peak, in bytes: `parameters`, `gradients`, `optimizer`, `activations` (the
            rest).
        modules: bytes of the ten largest modules, by dotted name.
        device_bytes: that the process takes of its GPU besides (see `overhead.gpu_bytes`).
    """

    peak_bytes: int
    parts: Mapping[str, int] = field(default_factory=dict)
    modules: Mapping[str, int] = field(default_factory=dict)
    device_bytes: int = 0


def estimate(workload: Trainable, num_ranks: int = 1, device: str = "cpu") -> Estimate:
    """How much memory training needs, without allocating it.

    It takes about as long as two updates of a small model. For a GPU the workload computes as it
    does there (`workers.device.precision`), and the peak is that of torch's allocator. On CPUs
    it estimates the memory in use; if `compact_memory` is off, the C library was seen to keep up to
    2.4 times as much. The largest of the first batches stands for all. Evaluation is not counted,
    except for the whole model that ranks build then if they hold parts of it and cannot call it
    together.

    Args:
        workload: with its configuration.
        num_ranks: of the trial.
        device: "cpu", or "cuda" with or without an index.

    Raises:
        UsageError: an option has no such value, the strategy cannot run on this many ranks, or the
            model is cut into stages.
    """
    on_cpu = device.startswith("cpu")
    values = options(workload)
    kind = STRATEGIES.get(PARALLELISM.value(values))
    mesh = Mesh(0, num_ranks, **kind.degrees(num_ranks, values))
    if mesh.pipeline > 1:
        raise UsageError("the memory of a pipeline's stages is not estimated")
    found = _simulated(workload, values, mesh, _rows(workload, values, mesh, on_cpu), on_cpu)
    peak = found.peak_bytes
    if not on_cpu:
        return replace(found, device_bytes=gpu_bytes(peak, mesh))
    extra = CPU_BYTES + (CPU_RANKS_BYTES if num_ranks > 1 else 0)
    extra += CPU_HALF_BYTES if PRECISION.value(values) in HALF else 0
    return replace(found, peak_bytes=peak + extra)


def _rows(workload: Trainable, values: Mapping[str, Any], mesh: Mesh, on_cpu: bool) -> Batch:
    """The rows of the largest batch that a rank computes at a time."""
    count = min(_MAX_BATCHES, Settings.of(workload).max_updates or _MAX_BATCHES)
    first = islice(workload.train_batches(0), count)
    batch = max(first, key=lambda batch: sum(value.numel() for value in batch.values()))
    if compiles_by_shape(values, "cpu" if on_cpu else "cuda"):
        batch = workload.bucketed(batch)
    share = math.ceil(len(next(iter(batch.values()))) / (mesh.data * mesh.shard))
    share = math.ceil(share / ACCUMULATION.value(values))
    return {key: value[:share] for key, value in batch.items()}


def _simulated(
    workload: Trainable,
    values: Mapping[str, Any],
    mesh: Mesh,
    rows: Batch,
    on_cpu: bool,
) -> Estimate:
    """The estimate of a rank of the mesh."""
    kind = STRATEGIES.get(PARALLELISM.value(values))
    # tf32 needs a GPU, and takes the memory of fp32.
    precision = Precision(PRECISION.value(values).replace("tf32", "fp32"), torch.device("cpu"))
    parts = min(2, ACCUMULATION.value(values))  # two take as much memory as any number
    weight = int(workload.weight(rows))
    sharded = mesh.shard > 1
    reduced = kind.replicated and mesh.world_size > 1
    with (
        planned_for("cpu" if on_cpu else "cuda"),
        nullcontext() if on_cpu else AutocastOfCuda(),
        FakeTensorMode(allow_non_fake_inputs=True) as mode,
        LiveStorages(weight, on_cpu) as storages,
    ):
        batch = {key: mode.from_tensor(value) for key, value in rows.items()}
        module = workload.build_model().train()
        whole = _bytes(module.parameters())
        plan = workload.plan(module)
        recompute(module, plan.layers, values)
        rest = kind.imitate(module, plan, mesh)
        storages.restart()
        # Sparse gradients are counted as dense ones: fake tensors have no rows.
        dense = {**values, SPARSE_GRADIENTS.name: False}
        optimizer = build_optimizer(dict(module.named_parameters()), dense)
        contributions = Contributions(module)
        gathered = gathered_bytes(module, plan.layers, values) if sharded else 0
        buckets = [torch.empty_like(p) for p in module.parameters()] if reduced else []
        for parameter in module.parameters() if sharded or reduced else ():
            parameter.register_post_accumulate_grad_hook(_drop)  # type: ignore[no-untyped-call]
        for update in range(2):
            optimizer.zero_grad(set_to_none=True)
            with contributions.recording() if update == 0 else nullcontext():
                for _ in range(parts):
                    with precision.autocast():
                        loss = workload.loss(module, batch)
                    (loss.float() / 2.0).backward()  # type: ignore[no-untyped-call]
                    del loss
            for parameter, bucket in zip(module.parameters(), buckets, strict=False):
                parameter.grad = bucket  # DDP's buckets hold gradients from the first update on
            step(optimizer)
        peak = storages.peak
        if sharded:  # the gradients were dropped before the optimizer used them
            for parameter in module.parameters():
                parameter.grad = torch.empty_like(parameter)
            step(optimizer)
        held = gradients = _bytes(module.parameters())
        moments = [value for entry in optimizer.state.values() for value in entry.values()]
        state = _bytes(value for value in moments if isinstance(value, Tensor))
    if rest:  # this rank also holds its shards of these, and less of their optimizer state
        gone = int(rest * state / held * (1 - 1 / mesh.tensor))
        peak += rest // mesh.tensor - gone
        held += rest // mesh.tensor - rest
        state -= gone
        gradients = held
    ratio = state / held if held else 0.0
    if sharded:
        activations = max(0, peak - held)
        unsynced = held if parts > 1 else 0
        building = whole + whole // mesh.shard if on_cpu else 0  # a rank builds it on the CPU
        peak = max((held * 2 + state) // mesh.shard + activations + gathered + unsynced, building)
        held, state = held // mesh.shard, state // mesh.shard
        gradients = held
    if not kind.replicated and mesh.world_size > 1:
        saved = int(whole * max(1.0, ratio)) if on_cpu else 0  # rank 0 collects it
        peak = max(peak, held + state + whole + saved)  # one is built for evaluation
    sizes = {
        "parameters": held,
        "gradients": gradients,
        "optimizer": state,
        "activations": max(0, peak - held - gradients - state),
    }
    table = contributions.table(
        dict(module.named_parameters()), lambda parameter: int(parameter.nbytes * ratio)
    )
    return Estimate(peak, sizes, table)


def _drop(parameter: Tensor) -> None:
    parameter.grad = None  # once it is complete, as if it were reduced into a shard


def gathered_bytes(module: nn.Module, layers: tuple[str, ...], values: Mapping[str, Any]) -> int:
    """Bytes of whole parameters and gradients that a sharded rank holds at a time."""
    whole = _bytes(module.parameters())
    sizes = [_bytes(module.get_submodule(name).parameters()) for name in layers]
    rest = whole - sum(sizes)
    largest = max(sizes, default=0)
    kept = rest + 2 * largest if RESHARD_AFTER_FORWARD.value(values) else whole
    return kept + 2 * max(largest, rest)  # a whole gradient and the buffer it is reduced from


def _bytes(tensors: Any) -> int:
    return sum(tensor.nbytes for tensor in {id(t): t for t in tensors}.values())


def main() -> None:
    """Answer until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries print to standard error
    os.nice(5)  # trials come first
    torch.set_num_threads(1)
    serve(sys.stdin, answers)


def serve(questions: TextIO, answers: TextIO) -> None:
    """Read what is estimated, then answer one configuration after the other."""
    header: Mapping[str, Any] = json.loads(questions.readline() or "{}")
    for line in questions:
        question = json.loads(line)
        kind: Any = WORKLOADS.get(header["workload"])
        try:
            workload = kind(question["params"], header["data"], header["fixed"])
            answer = asdict(estimate(workload, question["ranks"], header["device"]))
        except Exception as error:  # fake tensors cannot do all that a model may do
            answer = {"error": one_line(error)}
        answers.write(json.dumps({"key": question["key"], **answer}) + "\n")
        answers.flush()
