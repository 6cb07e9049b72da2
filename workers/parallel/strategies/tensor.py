"""Tensor parallelism: each rank computes some heads and some hidden units of every layer."""

import fnmatch
from typing import Any

from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)

from search_spaces.errors import UsageError
from search_spaces.knobs.parallelism import StrategyNeeds
from workers.parallel.base import Strategy
from workers.parallel.mesh import Mesh, contiguous
from workers.workload import ParallelPlan


class TensorParallel(Strategy):
    """Column- and row-wise products after Shoeybi et al. 2019 (https://arxiv.org/abs/1909.08053).

    The workload's plan names modules, each with one of these kinds:

    - "column": the rows of the weight are shared out; "column:3" if three matrices lie on top of
      each other, each of which is shared out.
    - "row": the columns of the weight are shared out.
    - "vocabulary": the rows of an embedding are shared out.

    Every rank computes the modules that the plan does not name. Between updates, their parameters
    and optimizer state are sharded, as `fsdp` does with all of them.
    """

    needs = StrategyNeeds(
        "heads and hidden units of each layer shared out, every rank sees the whole batch",
        constraints=("num_heads % ranks == 0",),
        plan=("tensor",),
    )
    axis = "tensor"

    @classmethod
    def imitate(cls, model: nn.Module, plan: ParallelPlan, mesh: Mesh) -> int:
        planned: set[int] = set()
        for name, kind in planned_modules(model, plan).items():
            module = model.get_submodule(name)
            dim = 1 if kind == "row" else 0
            for key, parameter in list(module.named_parameters(recurse=False)):
                if dim < parameter.ndim:
                    part = parameter.detach().chunk(mesh.tensor, dim)[0].clone()
                    setattr(module, key, nn.Parameter(part))
            planned |= {id(parameter) for parameter in module.parameters()}
        return sum(p.nbytes for p in model.parameters() if id(p) not in planned)

    def wrap(self, model: nn.Module) -> None:
        """Replace the planned parameters by their parts.

        Raises:
            UsageError: the tensor degree does not divide the number of heads, or the model has no
                module of a planned name.
        """
        plan = self.workload.plan(model)
        if not plan.tensor:
            raise UsageError("tensor parallelism needs a workload whose plan names modules for it")
        self.axes = self.mesh.device_mesh(self.device)
        self.groups: dict[str, int] = {}  # parameters whose rows are several matrices
        styles = {
            name: self._style(model.get_submodule(name), name, kind)
            for name, kind in planned_modules(model, plan).items()
        }
        parallelize_module(model, self.axes["tensor"], styles)
        model.to(self.device)  # what is not planned
        for name, style in styles.items():
            if isinstance(style, ColwiseParallel):
                model.get_submodule(name).register_forward_hook(_own)
        planned = {
            parameter for parameter in model.parameters() if isinstance(parameter.data, DTensor)
        }
        if planned != set(model.parameters()):
            contiguous(model)
            fully_shard(model, mesh=self.axes["tensor"], ignored_params=planned)
        self.plain = self.model = model

    def _style(self, module: nn.Module, name: str, kind: str) -> ParallelStyle:
        kind, _, count = kind.partition(":")
        if count:
            for key, parameter in module.named_parameters():
                self.groups[f"{name}.{key}"] = int(count)
                parameter.data = regrouped(parameter.data, int(count), self.mesh.tensor)
        styles = {
            "column": ColwiseParallel(),
            "row": RowwiseParallel(),
            "vocabulary": RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate()),
        }
        return styles[kind]

    def mean_over(self) -> int:
        return 1  # gradients of data-parallel replicas are summed

    def finish_gradients(self) -> None:
        """Reduce the partial sums that DTensor left, and sum over data-parallel replicas."""
        for parameter in self.plain.parameters():
            if isinstance(parameter.grad, DTensor):
                placements: Any = getattr(parameter, "placements", None)
                parameter.grad = parameter.grad.redistribute(placements=placements)
        self.sum_over_replicas(self.axes["data"].get_group())

    def gather(self, tensor: Tensor, name: str) -> Tensor:
        whole = super().gather(tensor, name)
        count = self.groups.get(name)
        return regrouped(whole, self.mesh.tensor, count) if count and whole.ndim else whole

    def scatter(self, whole: Tensor, like: Tensor, name: str) -> Tensor:
        count = self.groups.get(name)
        ordered = regrouped(whole, count, self.mesh.tensor) if count else whole
        return super().scatter(ordered, like, name)


def planned_modules(model: nn.Module, plan: ParallelPlan) -> dict[str, str]:
    """The kind of each module that the plan for tensor parallelism names, by its dotted name.

    Raises:
        UsageError: the model has no module of a planned name.
    """
    found: dict[str, str] = {}
    for pattern, kind in plan.tensor.items():
        names = [name for name, _ in model.named_modules() if fnmatch.fnmatchcase(name, pattern)]
        if not names:
            raise UsageError(
                f"the plan for tensor parallelism names {pattern!r}, which the model does not have"
            )
        found |= dict.fromkeys(names, kind)
    return found


def regrouped(tensor: Tensor, outer: int, inner: int) -> Tensor:
    """Rows in the order (outer, inner, ...) put into the order (inner, outer, ...).

    Three matrices (3, ranks, rows) on top of each other become, rank after rank, that rank's part
    of each. The function is its own inverse if `outer` and `inner` are swapped.
    """
    parts = tensor.view(outer, inner, -1, *tensor.shape[1:])
    return parts.transpose(0, 1).flatten(0, 2).contiguous()


def _own(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    # A model may change an output in place, which torch forbids for views of a DTensor.
    return output.clone()
