"""Pipeline parallelism: each rank has some layers; microbatches flow from rank to rank."""

import copy
import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, ClassVar, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class

from search_spaces.errors import UsageError
from search_spaces.knobs.base import COMPUTES_THE_SAME, Option
from search_spaces.knobs.parallelism import StrategyNeeds
from search_spaces.knobs.table import COMPILE, COMPILE_SCOPE, RECORDS_GRAPHS
from workers.data.batch import Batch, BatchShare
from workers.device.precision import Precision, compile_module, wide
from workers.parallel.base import Strategy
from workers.parallel.transfers import Tensors, collected, contiguous, sum_over
from workers.workload import Trainable

# Names of torch's schedules. Each rank has one stage, or two in a loop (0, 1, 0, 1).
ONE_STAGE: Final = ("1f1b", "gpipe")
INTERLEAVED: Final = "interleaved1f1b"
_PREFIX = "batch_"  # the schedule has keywords of its own
MAX_SCHEDULES = 2  # kept for different shapes: each keeps its receive buffers

SCHEDULE = Option(
    "schedule",
    "order of forward and backward over the microbatches of a pipeline",
    "1f1b",
    ONE_STAGE,
    affects=COMPUTES_THE_SAME,
    on_request=(INTERLEAVED,),
)
NUM_MICROBATCHES = Option(
    "num_microbatches",
    "microbatches of a pipeline, for each part of an accumulated batch",
    4,
    (2, 4, 8),
    ordered=True,
    affects=COMPUTES_THE_SAME,
)


class Pipeline(Strategy):
    """torch's pipelining.

    Sources: Huang et al. 2019 (gpipe, https://arxiv.org/abs/1811.06965), Narayanan et al. 2019
    (1f1b, https://arxiv.org/abs/1806.03377) and 2021 (interleaved1f1b,
    https://arxiv.org/abs/2104.04473).

    The workload's plan names the function that cuts the model. A stage takes what the stage before
    returned (a tensor or several, nothing at the first). By keyword it takes those tensors of the
    batch that its forward names; every rank has the batch. A parameter that several stages use is
    on each of them, and its gradient is summed over them.
    """

    needs = StrategyNeeds(
        "layers shared out, microbatches flow from rank to rank",
        plan=("stages",),
        constraints=(
            "num_layers >= ranks",
            f"schedule in {ONE_STAGE} or num_layers >= 2 * ranks",
        ),
    )
    options: ClassVar[tuple[Option, ...]] = (SCHEDULE, NUM_MICROBATCHES)
    axis = "pipeline"
    apart = True

    def wrap(self, model: nn.Module) -> None:
        """Cut the model and keep this rank's stage.

        Raises:
            UsageError: the workload cannot be cut, an option has no such value, or CUDA graphs
                would be recorded: a graph's outputs lie where the next microbatch writes its own.
        """
        mode = COMPILE.value(self.values)
        self.schedule = SCHEDULE.value(self.values)
        if mode in RECORDS_GRAPHS:
            raise UsageError(
                f"compile {mode!r} records CUDA graphs, which cannot compute the microbatches of a "
                "pipeline: compile must be off or default"
            )
        contiguous(model)
        axes = self.mesh.device_mesh(self.device)
        self.group = axes["pipeline"].get_group()
        self.data_group = axes["data"].get_group()
        degree = self.mesh.pipeline
        own = [stages_of(self.schedule, rank, degree) for rank in range(degree)]
        self.indices = own[self.mesh.coordinate("pipeline")]
        self.num_stages = sum(map(len, own))
        stages = cut(self.workload.plan(model).stages, model, self.num_stages)
        self.shadows = [shadow(stage) for stage in stages]
        mine = [stages[index].to(self.device) for index in self.indices]
        names = {id(p): name for name, p in model.named_parameters()}
        names |= {id(b): name for name, b in model.named_buffers() if name in model.state_dict()}
        self.schedules: dict[Any, Any] = {}  # by shape, the most recently used last
        self.boundaries: dict[Any, Any] = {}
        held = [
            {names[id(p)] for index in indices for p in stages[index].parameters()}
            for indices in own
        ]
        last = self.num_stages - 1
        self.stages = [
            _Stage(stage, self.workload, index == 0, index == last)
            for index, stage in zip(self.indices, mine, strict=True)
        ]
        self.held_parameters = {names[id(p)]: p for stage in mine for p in stage.parameters()}
        buffers = (buffer for stage in mine for buffer in stage.buffers())
        self.held_buffers = {names[id(b)]: b for b in buffers if id(b) in names}
        self.holders = {n: sum(n in rank for rank in held) for n in self.held_parameters}
        self.shared = self._shared_groups(held)
        if mode != "off" and COMPILE_SCOPE.value(self.values) == "model":
            for stage in mine:
                compile_module(stage, mode)

    def _shared_groups(
        self, held: list[set[str]]
    ) -> list[tuple[dist.ProcessGroup, list[nn.Parameter]]]:
        """The process group and this rank's parameters of each set of ranks that share some."""
        by_holders: dict[tuple[int, ...], list[str]] = {}
        for name in sorted(set().union(*held)):
            holders = tuple(rank for rank, names in enumerate(held) if name in names)
            if len(holders) > 1:
                by_holders.setdefault(holders, []).append(name)
        mine = []
        for holders, names in sorted(by_holders.items()):
            for data in range(self.mesh.data):  # every rank must take part in making every group
                ranks = [data * self.mesh.pipeline + holder for holder in holders]
                group = dist.new_group(ranks)
                if self.mesh.rank in ranks:
                    mine.append((group, [self.held_parameters[name] for name in names]))
        return mine

    def gradients(self, share: BatchShare, precision: Precision) -> Tensor:
        """Run the schedule over this replica's rows."""
        total = torch.zeros((), device=self.device)
        for part, _ in self.microbatches(share):
            for rows, count in self._even(part):
                for stage in self.stages:
                    stage.factor = precision.scale / share.weight if share.real else 0.0
                    stage.precision = precision
                losses = self._flow(rows, count)
                summed = sum((loss.detach() for loss in losses), torch.zeros_like(total))
                total += summed / precision.scale
        for group, parameters in self.shared:
            for parameter in parameters:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
            sum_over(group, [p.grad for p in parameters if p.grad is not None])
        self.sum_over_replicas(self.data_group)
        return total

    def _even(self, batch: Batch) -> Iterator[tuple[Batch, int]]:
        """The rows in microbatches of one size, and the few left over, each with a count.

        Stages exchange tensors of a fixed shape.
        """
        total = len(next(iter(batch.values())))
        count = min(int(NUM_MICROBATCHES.value(self.values)), total)
        even = total - total % count
        yield {key: value[:even] for key, value in batch.items()}, count
        if even < total:
            yield {key: value[even:] for key, value in batch.items()}, 1

    def _flow(self, batch: Batch, count: int) -> list[Tensor]:
        """Run `count` equal microbatches; returns their scaled losses on the last stage's rank."""
        one = {key: value[: len(value) // count] for key, value in batch.items()}
        key = (count, *(value.shape for value in one.values()))
        schedule = self.schedules.pop(key, None)
        if schedule is None:
            while len(self.schedules) >= MAX_SCHEDULES:
                del self.schedules[next(iter(self.schedules))]
            schedule = self._schedule(one, count)
        self.schedules[key] = schedule
        losses: list[Tensor] = []
        arguments: dict[str, Any] = {"target": torch.zeros(count), "return_outputs": False}
        arguments |= {_PREFIX + key: value for key, value in batch.items()}
        if self.stages[-1].last:
            arguments["losses"] = losses
        schedule.step(*(self.workload.inputs(batch) if self.stages[0].first else ()), **arguments)
        return losses

    def _schedule(self, batch: Batch, count: int) -> Any:
        """A schedule for microbatches of this shape; its stages learn shapes from meta tensors."""
        key = tuple(value.shape for value in batch.values())
        if key not in self.boundaries:  # meta tensors: without memory, and kept for every shape
            self.boundaries[key] = boundaries(self.shadows, batch)
        shapes = self.boundaries[key]
        inputs = tuple(torch.empty_like(x, device="meta") for x in self.workload.inputs(batch))
        loss = (torch.empty((), device="meta", requires_grad=True),)
        stages: list[Any] = [
            PipelineStage(
                stage,
                index,
                self.num_stages,
                self.device,
                input_args=inputs if stage.first else shapes[index - 1],
                output_args=loss if stage.last else shapes[index],
                group=self.group,
            )
            for index, stage in zip(self.indices, self.stages, strict=True)
        ]
        kind: Any = get_schedule_class(fitting(self.schedule, count, self.mesh.pipeline))
        given = stages if len(stages) > 1 else stages[0]
        return kind(given, count, loss_fn=lambda output, target: output, scale_grads=False)

    def copies(self, name: str, parameter: nn.Parameter) -> int:
        """The ranks of a pipeline that hold the parameter, times the replicas."""
        return self.holders[name] * self.mesh.data

    def merge(self, mine: Tensors) -> Tensors:
        """Collect the stages of the first replica on rank 0."""
        return collected(mine if self.mesh.coordinate("data") == 0 else {})


class _Stage(nn.Module):
    """One stage as torch's pipelining calls it: the last one ends in the loss."""

    def __init__(self, body: nn.Module, workload: Trainable, first: bool, last: bool) -> None:
        super().__init__()
        self.body = body
        self.workload = workload
        self.first = first
        self.last = last
        self.factor: float | Tensor = 1.0
        self.precision: Precision | None = None

    def forward(self, *arguments: Tensor, **batch: Tensor) -> Any:
        """The output of this stage, or the loss at the last one.

        Args:
            arguments: activations of the stage before; the model's inputs at the first.
            batch: the microbatch by prefixed names.
        """
        batch = {key.removeprefix(_PREFIX): value for key, value in batch.items()}
        with self.precision.autocast() if self.precision else nullcontext():
            output = self.body(*(() if self.first else arguments), **named(self.body, batch))
            if self.last:
                return wide(self.workload.criterion(output, batch)) * self.factor
        return tuple(wide(x) for x in as_tuple(output))


def stages_of(schedule: str, rank: int, degree: int) -> tuple[int, ...]:
    """The stages that a rank holds, of as many as all ranks hold together.

    Args:
        schedule: its name.
        rank: place in the pipeline.
        degree: ranks of the pipeline.
    """
    return (rank,) if schedule in ONE_STAGE else (rank, degree + rank)


def fitting(schedule: str, count: int, degree: int) -> str:
    """The schedule for so many microbatches: the one asked for, or a relative that takes any.

    Args:
        schedule: that was asked for.
        count: of microbatches.
        degree: ranks of the pipeline.
    """
    if schedule in ONE_STAGE:
        return schedule if count >= degree else "gpipe"
    return schedule if count >= degree and count % (count // degree) == 0 else "loopedbfs"


def cut(stages: str | None, model: nn.Module, num_stages: int) -> list[nn.Module]:
    """The stages of a model, cut by the function "module:function" of its plan.

    Raises:
        UsageError: the plan names no function, or it returns another number of stages.
    """
    if stages is None:
        raise UsageError("this workload's plan does not say how the model is cut into stages")
    module, _, function = stages.partition(":")
    split: Callable[[nn.Module, int], list[nn.Module]] = getattr(
        importlib.import_module(module), function
    )
    parts = split(model, num_stages)
    if len(parts) != num_stages:
        raise UsageError(f"{stages} must return {num_stages} stages, it returned {len(parts)}")
    return parts


def shadow(module: nn.Module) -> nn.Module:
    """A copy on the meta device, which has shapes and no memory."""
    tensors = [*module.parameters(), *module.buffers()]
    memo: dict[int, Any] = {id(t): t.detach().to("meta") for t in tensors}
    memo |= {id(p): nn.Parameter(memo[id(p)], p.requires_grad) for p in module.parameters()}
    return copy.deepcopy(module, memo)


def named(stage: nn.Module, batch: Batch) -> dict[str, Tensor]:
    """The tensors of a batch that a stage's forward names."""
    names = inspect.signature(stage.forward).parameters
    return {key: value for key, value in batch.items() if key in names}


def boundaries(shadows: list[nn.Module], batch: Batch) -> list[tuple[Tensor, ...]]:
    """The outputs of each stage but the last for such a batch, as meta tensors."""
    metas = {key: torch.empty_like(value, device="meta") for key, value in batch.items()}
    found: list[tuple[Tensor, ...]] = []
    with torch.no_grad():
        for stage in shadows[:-1]:
            output = stage(*(found[-1] if found else ()), **named(stage, metas))
            found.append(tuple(wide(x).requires_grad_() for x in as_tuple(output)))
    return found


def as_tuple(output: Any) -> tuple[Tensor, ...]:
    """One tensor or several, as a tuple."""
    return (output,) if isinstance(output, Tensor) else tuple(output)
