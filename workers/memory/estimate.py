"""Peak memory of a configuration before it is dispatched: two updates on fake tensors.

Fake tensors have shapes and no memory. The estimate imitates one rank on the model itself: the
strategy cuts the model (`Strategy.imitate`), a `pipeline` axis of its mesh leaves one stage, and a
`shard` axis leaves the shards and the layers that are gathered at a time.

Memory beside the tensors is added. Its terms for CPUs were measured by
benchmarks/training/memory.py. Those for GPUs are documented or guessed; benchmarks/training/gpu.py
compares them with a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from search_spaces.knobs.parallelism import PARALLELISM
from search_spaces.knobs.table import OPTIMIZER_SHARDING, PRECISION, SPARSE_GRADIENTS
from workers.data.batch import Batch
from workers.device.fake_tensors import AutocastOfCuda, LiveStorages, planned_for
from workers.device.gpu import CONTEXT_BYTES
from workers.device.peak_memory import Contributions
from workers.device.precision import Precision
from workers.parallel import STRATEGIES
from workers.parallel.mesh import AXES, Mesh
from workers.parallel.strategies import pipeline
from workers.parallel.strategies.fsdp import RESHARD_AFTER_FORWARD
from workers.training.optimizers import build_optimizer, step
from workers.training.settings import Settings, options
from workers.training.setup import compiles_by_shape, recompute
from workers.workload import Trainable

CPU_BYTES: Final = 20_000_000  # libraries and threads of the first update
CPU_HALF_BYTES: Final = 35_000_000  # oneDNN's kernels and reordered weights for half precisions
CPU_RANKS_BYTES: Final = 12_000_000  # the process group
CPU_SHARE: Final = 0.02  # free pieces in the allocator, as a share of the peak

# Workspace that NVIDIA advises for Hopper, the largest (cublasSetWorkspace, cuBLAS documentation).
CUBLAS_BYTES: Final = 32 << 20
# NCCL's buffer of a channel to a peer (NCCL_BUFFSIZE, https://docs.nvidia.com/deeplearning/nccl).
NCCL_BUFFER_BYTES: Final = 4 << 20
NCCL_CHANNELS: Final = 16  # of a communicator between GPUs that NVLink joins
NCCL_PEERS: Final = 2  # a ring has two neighbours
GPU_SHARE: Final = 0.1  # free pieces in the allocator, as a share of the peak


def cpu_bytes(peak: int, num_ranks: int, *, half: bool) -> int:
    """On a CPU, where it counts as memory of the trial.

    Args:
        peak: of the tensors.
        num_ranks: of the trial.
        half: whether products are computed in bf16 or fp16.
    """
    extra = CPU_BYTES + int(peak * CPU_SHARE)
    extra += CPU_RANKS_BYTES if num_ranks > 1 else 0
    return extra + (CPU_HALF_BYTES if half else 0)


def gpu_bytes(peak: int, mesh: Mesh) -> int:
    """On a GPU, where it does not count as memory of the trial, but has to fit.

    The CUDA context, the workspace of cuBLAS, the buffers of NCCL for each axis of the mesh, and
    pieces of memory that the allocator has reserved and cannot use.

    Args:
        peak: of the tensors.
        mesh: of the trial.
    """
    return CONTEXT_BYTES + CUBLAS_BYTES + _nccl_bytes(mesh) + int(peak * GPU_SHARE)


def _nccl_bytes(mesh: Mesh) -> int:
    degrees = [int(getattr(mesh, axis)) for axis in AXES]
    peers = sum(min(degree - 1, NCCL_PEERS) for degree in degrees)
    return peers * NCCL_CHANNELS * 2 * NCCL_BUFFER_BYTES  # to send and to receive


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
    does there (`workers.device.fake_tensors`), and the peak is that of torch's allocator. On CPUs
    it estimates the memory in use; if `compact_memory` is off, the C library was seen to keep up to
    2.4 times as much. The largest of the first batches stands for all. Evaluation is not counted,
    except for the whole model that ranks build then if they hold parts of it and cannot call it
    together.

    Args:
        workload: with its configuration.
        num_ranks: of the trial.
        device: "cpu", or "cuda" with or without an index.

    Raises:
        UsageError: an option has no such value, or the strategy cannot run on this many ranks.
    """
    on_cpu = device.startswith("cpu")
    rank = _Rank(workload, num_ranks, on_cpu)
    stages = range(rank.mesh.pipeline)
    found = max((rank.simulate(stage) for stage in stages), key=lambda e: e.peak_bytes)
    if not on_cpu:
        return replace(found, device_bytes=gpu_bytes(found.peak_bytes, rank.mesh))
    half = rank.precision.name in ("bf16", "fp16")
    extra = cpu_bytes(found.peak_bytes, num_ranks, half=half)
    return replace(found, peak_bytes=found.peak_bytes + extra)


class _Rank:
    """One rank of a strategy."""

    def __init__(self, workload: Trainable, num_ranks: int, on_cpu: bool) -> None:
        self.workload = workload
        self.on_cpu = on_cpu
        settings = Settings.of(workload)
        self.accumulation = settings.accumulation
        count = min(_MAX_BATCHES, settings.max_updates or _MAX_BATCHES)
        first = islice(workload.train_batches(0), count)
        self.batch = max(first, key=lambda batch: sum(value.numel() for value in batch.values()))
        self.values = options(workload)
        if compiles_by_shape(self.values, "cpu" if on_cpu else "cuda"):
            self.batch = workload.bucketed(self.batch)
        precision = PRECISION.value(self.values)
        # tf32 needs a GPU, and takes the memory of fp32.
        self.precision = Precision(precision.replace("tf32", "fp32"), torch.device("cpu"))
        self.strategy = STRATEGIES.get(PARALLELISM.value(self.values))
        self.mesh = Mesh(0, num_ranks, **self.strategy.degrees(num_ranks, self.values))

    def simulate(self, stage: int) -> Estimate:
        """Peak of a rank of a pipeline, whose stage this is (0 without a pipeline)."""
        sharded = self.mesh.shard > 1
        rows = self._rows()
        weight = int(self.workload.weight(rows))
        with (
            planned_for("cpu" if self.on_cpu else "cuda"),
            nullcontext() if self.on_cpu else AutocastOfCuda(),
            FakeTensorMode(allow_non_fake_inputs=True) as mode,
            LiveStorages(weight, self.on_cpu) as storages,
        ):
            fakes = {key: mode.from_tensor(value) for key, value in rows.items()}
            model = self.workload.build_model().train()
            whole = _bytes(model.parameters())
            plan = self.workload.plan(model)
            recompute(model, plan.layers, self.values)
            rest = self.strategy.imitate(model, plan, self.mesh)
            compute = self._computation(model, stage, fakes)
            module = compute.module
            del model
            storages.restart()
            # Sparse gradients are counted as dense ones: fake tensors have no rows.
            dense = {**self.values, SPARSE_GRADIENTS.name: False}
            optimizer = build_optimizer(dict(module.named_parameters()), dense, self.workload.outer)
            contributions = Contributions(module)
            gathered = gathered_bytes(module, plan.layers, self.values) if sharded else 0
            reduced = self.strategy.replicated and self.mesh.world_size > 1
            buckets = [torch.empty_like(p) for p in module.parameters()] if reduced else []
            for update in range(2):
                optimizer.zero_grad(set_to_none=True)
                with contributions.recording() if update == 0 else nullcontext():
                    compute.run(drop_gradients=sharded or reduced)
                for parameter, bucket in zip(module.parameters(), buckets, strict=False):
                    parameter.grad = bucket  # DDP's buckets hold gradients from the first update on
                step(optimizer)
            peak = storages.peak
            if sharded:  # the gradients were dropped before the optimizer used them
                for parameter in module.parameters():
                    parameter.grad = torch.empty_like(parameter)
                step(optimizer)
            held = _bytes(module.parameters())
            values = [value for entry in optimizer.state.values() for value in entry.values()]
            state = _bytes(value for value in values if isinstance(value, Tensor))
        if OPTIMIZER_SHARDING.value(self.values) and self.strategy.replicated:
            gone = state - state // self.mesh.data
            peak -= gone
            state -= gone
        if rest:  # this rank also holds its shards of these, and less of their optimizer state
            degree = self.mesh.tensor
            gone = int(rest * state / held * (1 - 1 / degree))
            peak += rest // degree - gone
            held += rest // degree - rest
            state -= gone
        return self._estimate(peak, held, state, whole, gathered, contributions, module)

    def _estimate(
        self,
        peak: int,
        held: int,
        state: int,
        whole: int,
        gathered: int,
        contributions: Contributions,
        module: Any,
    ) -> Estimate:
        ratio = state / held if held else 0.0
        gradients = held
        shards = self.mesh.shard
        if shards > 1:
            activations = max(0, peak - held)
            share = (held * 2 + state) // shards
            unsynced = held if self.accumulation > 1 else 0
            building = whole + whole // shards if self.on_cpu else 0  # rank 0 builds it on the CPU
            peak = max(share + activations + gathered + unsynced, building)
            held //= shards
            state //= shards
            gradients = held
        if not self.strategy.replicated and self.mesh.world_size > 1:
            saved = int(whole * max(1.0, ratio)) if self.on_cpu else 0  # rank 0 collects it
            peak = max(peak, held + state + whole + saved)  # one is built for evaluation
        parts = {"parameters": held, "gradients": gradients, "optimizer": state}
        parts["activations"] = max(0, peak - held - gradients - state)
        table = contributions.table(
            dict(module.named_parameters()), lambda p: int(p.nbytes * ratio)
        )
        return Estimate(peak, parts, table)

    def _rows(self) -> Batch:
        """The rows of the largest share that is computed at a time."""
        total = len(next(iter(self.batch.values())))
        share = math.ceil(total / (self.mesh.data * self.mesh.shard))
        if self.mesh.pipeline == 1:
            share = math.ceil(share / self.accumulation)
        return {key: value[:share] for key, value in self.batch.items()}

    def _computation(self, model: nn.Module, rank: int, batch: Batch) -> _Whole | _Stages:
        degree = self.mesh.pipeline
        if degree == 1:
            return _Whole(self.workload, self.precision, model, batch, self.accumulation)
        schedule = pipeline.SCHEDULE.value(self.values)
        indices = pipeline.stages_of(schedule, rank, degree)
        cut = pipeline.cut(self.workload.plan(model).stages, model, degree * len(indices))
        rows = len(next(iter(batch.values())))
        count = min(int(pipeline.NUM_MICROBATCHES.value(self.values)), rows)
        in_flight = count  # at most, of ranks with two stages
        if schedule == "1f1b" and count >= degree:
            in_flight = min(count, degree - rank)
        given = (self.workload, self.precision, cut)
        return _Stages([_Stage(*given, index, batch, count, in_flight) for index in indices])


@dataclass
class _Whole:
    """Forward and backward of a whole model."""

    workload: Trainable
    precision: Precision
    module: nn.Module
    batch: Batch
    accumulation: int

    def run(self, drop_gradients: bool) -> None:
        """One update's gradients; two microbatches take as much memory as any number."""
        handles = _dropping(self.module) if drop_gradients else []
        for _ in range(min(2, self.accumulation)):
            with self.precision.autocast():
                loss = self.workload.loss(self.module, self.batch)
            (loss.float() / 2.0).backward()  # type: ignore[no-untyped-call]
            del loss
        for handle in handles:
            handle.remove()


class _Stages:
    """Forward and backward of the stages of one rank, the last one backward first."""

    def __init__(self, stages: list[_Stage]) -> None:
        self.stages = stages
        self.module = (
            stages[0].module
            if len(stages) == 1
            else nn.ModuleList([stage.module for stage in stages])
        )

    def run(self, drop_gradients: bool) -> None:
        """One update's gradients."""
        caches = [stage.begin() for stage in self.stages]
        while caches:
            cache = caches.pop()
            while cache:
                torch.autograd.backward(*cache.pop(0))


class _Stage:
    """Forward and backward of one pipeline stage with several microbatches in flight."""

    def __init__(
        self,
        workload: Trainable,
        precision: Precision,
        stages: list[nn.Module],
        index: int,
        batch: Batch,
        count: int,
        in_flight: int,
    ) -> None:
        self.workload = workload
        self.module = stages[index]
        self.in_flight = in_flight
        self.last = index == len(stages) - 1
        self.count = count
        self.precision = precision
        rows = max(1, len(next(iter(batch.values()))) // count)
        self.batch = {key: value[:rows] for key, value in batch.items()}
        shadows = [pipeline.shadow(stage) for stage in stages]
        shapes = pipeline.shapes_of(self.batch, 1)
        between = [[x.shape for x in row] for row in pipeline.boundaries(shadows, shapes)]
        self.received = [[], *between][index]
        self.returned = [*between, []][index]
        self.kept: list[Any] = []
        self.inputs = pipeline.named(self.module, self.batch)

    def begin(self) -> list[tuple[tuple[Tensor, ...], list[Tensor] | None]]:
        """Forward of all microbatches, and backward of those that are in flight no longer."""
        inputs = self._buffers(self.received, grad=True)
        gradients = self._buffers(self.returned, grad=False)
        # Each schedule that the strategy keeps has buffers of its own.
        self.kept = [*self.kept, (inputs, gradients)][-pipeline.MAX_SCHEDULES :]
        cache: list[tuple[tuple[Tensor, ...], list[Tensor] | None]] = []
        for index in range(self.count):
            if len(cache) == self.in_flight:
                torch.autograd.backward(*cache.pop(0))
            with self.precision.autocast():
                output = self.module(*inputs[index], **self.inputs)
                if self.last:
                    output = self.workload.criterion(output, self.batch)
                result = pipeline.as_tuple(output)
            gradient = None if self.last else gradients[index]
            cache.append((tuple(x.float() for x in result), gradient))
            del output, result
        return cache

    def _buffers(self, shapes: list[torch.Size], *, grad: bool) -> list[list[Tensor]]:
        return [
            [torch.empty(shape, requires_grad=grad) for shape in shapes] for _ in range(self.count)
        ]


def _dropping(module: nn.Module) -> list[Any]:
    """Drop each gradient once it is complete, as if it were reduced into a shard."""

    def drop(parameter: Tensor) -> None:
        parameter.grad = None

    parameters: list[Any] = list(module.parameters())
    return [parameter.register_post_accumulate_grad_hook(drop) for parameter in parameters]


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
