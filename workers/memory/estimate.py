"""Peak memory of a configuration before it is dispatched: two updates on tensors that have shapes and no memory.

What a strategy leaves on one rank is imitated on the model itself: narrower matrices for `tensor`, one stage for
`pipeline`, the dense part for `embedding_server`, and for `fsdp` the shards and the layers that are gathered at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from workers.device.peak_memory import Contributions
from workers.device.precision import Precision
from workers.training.optimizers import build_optimizer, step
from workers.training.settings import Settings, options
from workers.training.torch_flags import recompute

from . import shard as shrink
from .fake_tensors import Ledger

if TYPE_CHECKING:
    from workers.workload import Batch, Trainable

# On CPUs, measured by benchmarks/training/memory.py: libraries that are loaded and threads that are started by the first update,
# oneDNN's kernels and reordered weights for half precisions, and what the allocator keeps in free pieces, as a share of
# what is in use at the peak.
CPU_BYTES = 20_000_000
CPU_HALF_BYTES = 35_000_000
CPU_RANKS_BYTES = 12_000_000
CPU_SHARE = 0.02
_LOOKED_AT = 50


@dataclass(frozen=True)
class Estimate:
    """Peak memory of the rank that needs most.

    Args:
        peak_bytes: above what the process takes before the trial.
        parts: of it, in bytes: `parameters`, `gradients`, `optimizer`, `activations` (and all else).
        modules: the ten largest by dotted name, in bytes.
    """

    peak_bytes: int
    parts: Mapping[str, int] = field(default_factory=dict)
    modules: Mapping[str, int] = field(default_factory=dict)


def estimate(workload: Trainable, num_ranks: int = 1, device: str = "cpu") -> Estimate:
    """How much memory training needs, without allocating it; takes about as long as two updates of a small model.

    On CPUs this is memory in use; with `compact_memory` off, the C library was seen to keep up to 2.4 times as much.
    The largest of the first batches stands for all. Evaluation is not counted, except for the whole model that
    rank 0 holds meanwhile where the strategy has it in parts.

    Raises:
        UsageError: an option has no such value.
    """
    settings = Settings.of(workload)
    rank = _Rank(workload, settings, num_ranks, _largest(workload), device.startswith("cpu"))
    found = max((rank.simulate(part) for part in range(rank.num_parts)), key=lambda e: e.peak_bytes)
    if not device.startswith("cpu"):
        return found
    extra = (
        CPU_BYTES + (CPU_RANKS_BYTES if num_ranks > 1 else 0) + int(found.peak_bytes * CPU_SHARE)
    )
    extra += CPU_HALF_BYTES if settings.precision in ("bf16", "fp16") else 0
    return Estimate(found.peak_bytes + extra, found.parts, found.modules)


class _Rank:
    """What one rank of a strategy computes."""

    def __init__(
        self, workload: Trainable, settings: Settings, num_ranks: int, batch: Batch, on_cpu: bool
    ) -> None:
        self.workload, self.settings, self.num_ranks, self.batch = (
            workload,
            settings,
            num_ranks,
            batch,
        )
        self.on_cpu = on_cpu
        self.options = options(workload)
        name = settings.parallelism.replace("-", "_")
        inner = int(
            self.options.get("tensor_degree" if name == "data_tensor" else "pipeline_degree", 2)
        )
        self.tensor = {"tensor": num_ranks, "data_tensor": inner}.get(name, 1)
        self.stages = {"pipeline": num_ranks, "data_pipeline": inner}.get(name, 1)
        self.shards = num_ranks if name == "fsdp" else 1
        self.served = name == "embedding_server"
        self.data = (
            max(1, num_ranks - 1) if self.served else num_ranks // (self.tensor * self.stages)
        )
        self.num_parts = self.stages

    def simulate(self, part: int) -> Estimate:
        """Peak of pipeline stage `part` (0 without a pipeline)."""
        rows = self._rows()
        weight = int(self.workload.weight(rows))
        with (
            FakeTensorMode(allow_non_fake_inputs=True) as mode,
            Ledger(weight, self.on_cpu) as ledger,
        ):
            fakes = {key: mode.from_tensor(value) for key, value in rows.items()}
            model = self.workload.build_model().train()
            whole = _bytes(model.parameters())
            plan = self.workload.plan(model)
            recompute(model, plan.layers, self.settings.activation_checkpointing)
            rest = shrink.tensor(model, plan, self.tensor)
            if self.served:
                shrink.served(model, plan)
            compute = (
                self._flow(model, part, fakes) if self.stages > 1 else self._whole(model, fakes)
            )
            module = compute.module
            del model
            ledger.restart()
            optimizer = build_optimizer(module.parameters(), self.options)
            contributions = Contributions.of(module)
            gathered = _gathered(module, plan.layers, self.options) if self.shards > 1 else 0
            for update in range(2):
                optimizer.zero_grad(set_to_none=True)
                with contributions.recording() if update == 0 else nullcontext():
                    compute.run(drop_gradients=self.shards > 1)
                step(optimizer)
            peak = ledger.peak
            if self.shards > 1:  # their gradients vanished before the optimizer saw them
                for parameter in module.parameters():
                    parameter.grad = torch.empty_like(parameter)
                step(optimizer)
            held = _bytes(module.parameters())
            state = _bytes(
                v for s in optimizer.state.values() for v in s.values() if isinstance(v, Tensor)
            )
        if rest:  # its shards are there besides; less of its optimizer state is
            gone = int(rest * state / held * (1 - 1 / self.tensor))
            peak += rest // self.tensor - gone
            held, state = held - rest + rest // self.tensor, state - gone
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
        if self.shards > 1:
            activations = max(0, peak - held)
            share = (held * 2 + state) // self.shards
            unsynced = held if self.settings.accumulation > 1 else 0
            peak = max(share + activations + gathered + unsynced, whole + whole // self.shards)
            held, state, gradients = held // self.shards, state // self.shards, held // self.shards
        if self.shards * self.tensor * self.stages > 1 or self.served:  # rank 0 collects the whole
            peak = max(peak, held + state + 2 * whole, held + state + int(whole * (1 + ratio)))
        parts = {"parameters": held, "gradients": gradients, "optimizer": state}
        parts["activations"] = max(0, peak - held - gradients - state)
        table = contributions.table(
            dict(module.named_parameters()), lambda p: int(p.nbytes * ratio)
        )
        return Estimate(peak, parts, table)

    def _rows(self) -> Batch:
        """The rows of the largest share that is computed at a time."""
        total = len(next(iter(self.batch.values())))
        share = math.ceil(total / self.data)
        if self.stages == 1:
            share = math.ceil(share / self.settings.accumulation)
        return {key: value[:share] for key, value in self.batch.items()}

    def _whole(self, module: nn.Module, batch: Batch) -> _Whole:
        return _Whole(self.workload, self.settings, module, batch)

    def _flow(self, model: nn.Module, part: int, batch: Batch) -> _Flow:
        from workers.parallel.strategies.pipeline import cut

        stages = cut(self.workload.plan(model).stages, model, self.stages)
        count = min(int(self.options.get("num_microbatches", 4)), len(next(iter(batch.values()))))
        if self.options.get("schedule", "1f1b") == "1f1b" and count >= self.stages:
            flight = min(count, self.stages - part)
        else:
            flight = count
        return _Flow(self.workload, self.settings, stages, part, batch, count, flight)


class _Whole:
    """Forward and backward of a whole model."""

    def __init__(
        self, workload: Trainable, settings: Settings, module: nn.Module, batch: Batch
    ) -> None:
        self.workload, self.settings, self.module, self.batch = workload, settings, module, batch
        self.precision = Precision(
            settings.precision if settings.precision != "tf32" else "fp32", torch.device("cpu")
        )

    def run(self, drop_gradients: bool) -> None:
        """One update's gradients; two microbatches show what any number takes."""
        handles = _dropping(self.module) if drop_gradients else []
        for _ in range(min(2, self.settings.accumulation)):
            with self.precision.autocast():
                loss = self.workload.loss(self.module, self.batch)
            (loss.float() / 2.0).backward()  # type: ignore[no-untyped-call]
            del loss
        for handle in handles:
            handle.remove()


class _Flow:
    """Forward and backward of one pipeline stage with several microbatches in flight."""

    def __init__(
        self, workload: Trainable, settings: Settings, stages: list[nn.Module], part: int, batch: Batch, count: int,
        flight: int,
    ) -> None:  # fmt: skip
        from workers.parallel.strategies.pipeline import as_tuple, boundaries, named, shadow

        self.workload, self.module, self.flight = workload, stages[part], flight
        self.last, self.count = part == len(stages) - 1, count
        self.precision = Precision(settings.precision, torch.device("cpu"))
        rows = max(1, len(next(iter(batch.values()))) // count)
        self.batch = {key: value[:rows] for key, value in batch.items()}
        between = [
            [x.shape for x in row]
            for row in boundaries([shadow(stage) for stage in stages], self.batch)
        ]
        self.received, self.returned = [[], *between][part], [*between, []][part]
        self.kept: list[Any] = []
        self.inputs = named(self.module, self.batch)
        self.as_tuple: Callable[[Any], tuple[Tensor, ...]] = as_tuple

    def run(self, drop_gradients: bool) -> None:
        """One update's gradients."""
        from workers.parallel.strategies.pipeline import KEPT

        inputs, gradients = (
            self._buffers(self.received, grad=True),
            self._buffers(self.returned, grad=False),
        )
        self.kept = [*self.kept, (inputs, gradients)][
            -KEPT:
        ]  # a schedule keeps them, and one of another shape too
        cache: list[tuple[tuple[Tensor, ...], list[Tensor] | None]] = []
        for index in range(self.count):
            if len(cache) == self.flight:
                torch.autograd.backward(*cache.pop(0))
            with self.precision.autocast():
                output = self.module(*inputs[index], **self.inputs)
                result = (
                    (self.workload.criterion(output, self.batch),)
                    if self.last
                    else self.as_tuple(output)
                )
            cache.append(
                (tuple(x.float() for x in result), None if self.last else gradients[index])
            )
            del output, result
        while cache:
            torch.autograd.backward(*cache.pop(0))

    def _buffers(self, shapes: list[torch.Size], *, grad: bool) -> list[list[Tensor]]:
        return [
            [torch.empty(shape, requires_grad=grad) for shape in shapes] for _ in range(self.count)
        ]


def _dropping(module: nn.Module) -> list[Any]:
    """Have each gradient vanish when it is complete, as one that is reduced into a shard does."""

    def forget(parameter: Tensor) -> None:
        parameter.grad = None

    return [p.register_post_accumulate_grad_hook(forget) for p in module.parameters()]  # type: ignore[no-untyped-call]


def _gathered(module: nn.Module, layers: tuple[str, ...], given: Mapping[str, Any]) -> int:
    """Bytes of whole parameters and gradients that a sharded rank holds at a time."""
    whole = _bytes(module.parameters())
    sizes = [_bytes(module.get_submodule(name).parameters()) for name in layers]
    rest, largest = whole - sum(sizes), max(sizes, default=0)
    kept = whole if not given.get("reshard_after_forward", True) else rest + 2 * largest
    return kept + 2 * max(largest, rest)  # a whole gradient and the buffer it is reduced from


def _bytes(tensors: Any) -> int:
    return sum(tensor.nbytes for tensor in {id(t): t for t in tensors}.values())


def _largest(workload: Trainable) -> Batch:
    """The batch with most elements among the first ones, or among all that the trial will see."""
    count = min(_LOOKED_AT, Settings.of(workload).max_updates or _LOOKED_AT)
    found = islice(workload.train_batches(0), count)
    return max(found, key=lambda batch: sum(value.numel() for value in batch.values()))
