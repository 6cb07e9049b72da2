"""Pipeline parallelism: each rank has some layers; microbatches flow from rank to rank."""

import copy
import inspect
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from functools import lru_cache, partial
from itertools import chain
from pkgutil import resolve_name
from typing import Any, ClassVar, Final

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class

from search_spaces.errors import UsageError
from search_spaces.knobs.base import COMPUTES_THE_SAME, Option
from search_spaces.knobs.parallelism import StrategyNeeds
from search_spaces.knobs.table import COMPILE, COMPILE_SCOPE, RECORDS_GRAPHS
from workers.batches import Batch, BatchShare
from workers.device.precision import Precision, compile_module, wide
from workers.parallel.base import Strategy
from workers.parallel.mesh import contiguous, sum_over
from workers.workload import Trainable

# Names of torch's schedules. Each rank has one stage, or two in a loop (0, 1, 0, 1).
ONE_STAGE: Final = ("1f1b", "gpipe")
INTERLEAVED: Final = "interleaved1f1b"
Shapes = tuple[tuple[str, tuple[int, ...], torch.dtype], ...]  # of the tensors of a batch
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
        self.group, self.data_group = axes["pipeline"].get_group(), axes["data"].get_group()
        degree = self.mesh.pipeline
        own = [stages_of(self.schedule, rank, degree) for rank in range(degree)]
        self.num_stages = sum(map(len, own))
        split = resolve_name(str(self.workload.plan(model).stages))
        stages: list[nn.Module] = split(model, self.num_stages)
        shadows = [copy.deepcopy(stage).to("meta") for stage in stages]
        self.boundaries = lru_cache(None)(partial(boundaries, shadows))
        self.schedules = lru_cache(MAX_SCHEDULES)(self._schedule_for)
        names = {id(p): name for name, p in model.named_parameters()}
        held = [{names[id(p)] for i in mine for p in stages[i].parameters()} for mine in own]
        self.holders = Counter(chain.from_iterable(held))
        shapes = {name: p.shape for name, p in model.named_parameters()}
        self.shared = {name: shape for name, shape in shapes.items() if self.holders[name] > 1}
        self.stages = {
            index: _Stage(stages[index].to(self.device), self.workload, index, self.num_stages)
            for index in own[self.mesh.coordinate("pipeline")]
        }
        # The model keeps the parameters and buffers of these stages alone, under their names.
        kept = {id(t) for s in self.stages.values() for t in (*s.parameters(), *s.buffers())}
        for module in model.modules():
            for tensors in (module._parameters, module._buffers):
                gone = [name for name, tensor in tensors.items() if id(tensor) not in kept]
                tensors.update(dict.fromkeys(gone))
        self.plain = model
        if mode != "off" and COMPILE_SCOPE.value(self.values) == "model":
            for stage in self.stages.values():
                compile_module(stage.body, mode)

    def gradients(self, share: BatchShare, precision: Precision) -> Tensor:
        total = torch.zeros((), device=self.device)
        for stage in self.stages.values():
            stage.factor = precision.scale / share.weight if share.real else 0.0
            stage.precision = precision
        for part in share.parts:
            for rows, count in self._even(part.to(self.device)):
                schedule = self.schedules(count, shapes_of(rows, count))
                losses: list[Tensor] = []  # scaled, on the last stage's rank
                last = {"losses": losses} if self.num_stages - 1 in self.stages else {}
                inputs = self.workload.inputs(rows) if 0 in self.stages else ()
                target = torch.zeros(count)
                schedule.step(*inputs, target=target, return_outputs=False, **last, **rows)
                summed = sum((loss.detach() for loss in losses), torch.zeros_like(total))
                total += summed / precision.scale
        mine = self.parameters()
        grads = {n: torch.zeros(shape, device=self.device) for n, shape in self.shared.items()}
        for name in grads.keys() & mine.keys():
            if (grad := mine[name].grad) is not None:
                grads[name] = grad
            mine[name].grad = grads[name]
        sum_over(self.group, list(grads.values()))
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

    def _schedule_for(self, count: int, shapes: Shapes) -> Any:
        """A schedule for microbatches of this shape; its stages learn shapes from meta tensors."""
        between = self.boundaries(shapes)
        inputs = self.workload.inputs(_metas(shapes))
        loss = (torch.empty((), device="meta", requires_grad=True),)
        stages: list[Any] = [
            PipelineStage(
                stage,
                index,
                self.num_stages,
                self.device,
                input_args=between[index - 1] if index else inputs,
                output_args=loss if stage.last else between[index],
                group=self.group,
            )
            for index, stage in self.stages.items()
        ]
        kind: Any = get_schedule_class(fitting(self.schedule, count, self.mesh.pipeline))
        given = stages if len(stages) > 1 else stages[0]
        return kind(given, count, loss_fn=lambda output, target: output, scale_grads=False)

    def copies(self, name: str, parameter: nn.Parameter) -> int:
        return self.holders[name] * self.mesh.data

    def sends(self, name: str) -> bool:
        return self.mesh.coordinate("data") == 0


class _Stage(nn.Module):
    """One stage as torch's pipelining calls it: the last one ends in the loss."""

    def __init__(self, body: nn.Module, workload: Trainable, index: int, num_stages: int) -> None:
        super().__init__()
        self.body = body
        self.workload = workload
        self.first, self.last = index == 0, index == num_stages - 1
        self.factor: float | Tensor = 1.0
        self.precision: Precision | None = None

    def forward(self, *arguments: Tensor, **batch: Tensor) -> Any:
        """The output of this stage, or the loss at the last one.

        Args:
            arguments: activations of the stage before; the model's inputs at the first.
            batch: the microbatch.
        """
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


def named(stage: nn.Module, batch: Batch) -> dict[str, Tensor]:
    """The tensors of a batch that a stage's forward names."""
    names = inspect.signature(stage.forward).parameters
    return {key: value for key, value in batch.items() if key in names}


def shapes_of(batch: Batch, count: int) -> Shapes:
    """The tensors of one of `count` equal microbatches, as a key."""
    return tuple((k, (len(v) // count, *v.shape[1:]), v.dtype) for k, v in batch.items())


def _metas(shapes: Shapes) -> Batch:
    return {name: torch.empty(size, dtype=d, device="meta") for name, size, d in shapes}


def boundaries(shadows: list[nn.Module], shapes: Shapes) -> list[tuple[Tensor, ...]]:
    """The outputs of each stage but the last for such a batch, as meta tensors."""
    metas = _metas(shapes)
    found: list[tuple[Tensor, ...]] = []
    with torch.no_grad():
        for stage in shadows[:-1]:
            output = stage(*(found[-1] if found else ()), **named(stage, metas))
            found.append(tuple(wide(x).requires_grad_() for x in as_tuple(output)))
    return found


def as_tuple(output: Any) -> tuple[Tensor, ...]:
    """One tensor or several, as a tuple."""
    return (output,) if isinstance(output, Tensor) else tuple(output)
