"""Tensor parallelism: each rank computes some heads and some hidden units of every layer."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)

from search_spaces.errors import UsageError
from workers.parallel.base import ModuleStrategy, contiguous, is_sharded, local
from workers.parallel.needs import Needs

__all__ = ["TensorParallel"]


class TensorParallel(ModuleStrategy):
    """Column- and row-wise products after Shoeybi et al. 2019 (https://arxiv.org/abs/1909.08053).

    The workload's plan says what becomes of each module: "column" (rows of the weight are shared out; "column:3"
    where they are three matrices on top of each other, each of which is shared out), "row", "vocabulary" (an
    embedding by its rows), or "sequence" (a norm computed by positions where option `sequence_parallel` says so:
    Korthikanti et al. 2022, https://arxiv.org/abs/2205.05198). What the plan leaves out is computed on every rank;
    between updates its parameters and their optimizer state are shared out, as `fsdp` does with all of them.
    """

    needs = Needs(
        "heads and hidden units of each layer shared out, every rank sees the whole batch",
        constraints=("num_heads % ranks == 0",),
        plan=("tensor",),
    )

    @classmethod
    def degrees(cls, num_ranks: int, options: Mapping[str, Any]) -> dict[str, int]:
        """All ranks on the tensor axis."""
        return {"tensor": num_ranks}

    def wrap(self, model: nn.Module) -> None:
        """Replace the planned parameters by their parts.

        Raises:
            UsageError: the tensor degree does not divide the number of heads, or the plan names no such module.
        """
        plan, degree = self.workload.plan(model), self.mesh.tensor
        if not plan.tensor or plan.num_heads % degree:
            raise UsageError(
                f"a tensor degree of {degree} must divide the attention heads, the workload has {plan.num_heads}"
            )
        self.axes = self.mesh.device_mesh(self.device)
        self.groups: dict[str, int] = {}  # parameters whose rows are several matrices
        styles: dict[str, ParallelStyle] = {}
        for pattern, kind in plan.tensor.items():
            if kind == "sequence" and not self.options.get("sequence_parallel", False):
                continue
            names = [
                name for name, _ in model.named_modules() if fnmatch.fnmatchcase(name, pattern)
            ]
            if not names:
                raise UsageError(
                    f"the plan for tensor parallelism names {pattern!r}, which the model has not"
                )
            for name in names:
                styles[name] = self._style(model.get_submodule(name), name, kind)
        parallelize_module(model, self.axes["tensor"], styles)
        for name, style in styles.items():
            if isinstance(style, ColwiseParallel):
                model.get_submodule(name).register_forward_hook(_own)
        planned = {parameter for parameter in model.parameters() if is_sharded(parameter.data)}
        if planned != set(model.parameters()):
            contiguous(model)
            fully_shard(model, mesh=self.axes["tensor"], ignored_params=planned)
        self.model = self.plain = model

    def _style(self, module: nn.Module, name: str, kind: str) -> ParallelStyle:
        kind, _, count = kind.partition(":")
        if count:
            for key, parameter in module.named_parameters():
                self.groups[f"{name}.{key}"] = int(count)
                parameter.data = regrouped(parameter.data, int(count), self.mesh.tensor)
        if kind == "column":
            return ColwiseParallel()
        if kind == "row":
            return RowwiseParallel()
        if kind == "vocabulary":
            return RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate())
        if kind == "sequence":
            return _SequenceNorm()
        raise UsageError(
            f"a module is planned as column, row, vocabulary or sequence, got {kind!r}"
        )

    def mean_over(self) -> int:
        """Gradients of data-parallel replicas are summed."""
        return 1

    def settle(self) -> None:
        """Finish gradients that DTensor left as partial sums, and sum over data-parallel replicas."""
        for parameter in self.plain.parameters():
            grad = parameter.grad
            if isinstance(grad, DTensor) and grad.placements != parameter.placements:  # type: ignore[attr-defined]
                parameter.grad = grad.redistribute(placements=parameter.placements)  # type: ignore[attr-defined]
        if self.mesh.data > 1:
            group = self.axes["data"].get_group()
            grads = [local(p.grad) for p in self.plain.parameters() if p.grad is not None]
            for work in [dist.all_reduce(grad, group=group, async_op=True) for grad in grads]:
                work.wait()

    def gather(self, tensor: Tensor, name: str) -> Tensor:
        """Whole, its rows in their canonical order."""
        whole = super().gather(tensor, name)
        count = self.groups.get(name)
        return regrouped(whole, self.mesh.tensor, count) if count and whole.ndim else whole

    def scatter(self, whole: Tensor, like: Tensor, name: str) -> Tensor:
        """This rank's rows of each matrix."""
        count = self.groups.get(name)
        return super().scatter(
            regrouped(whole, count, self.mesh.tensor) if count else whole, like, name
        )


def regrouped(tensor: Tensor, outer: int, inner: int) -> Tensor:
    """Rows in the order (outer, inner, ...) put into the order (inner, outer, ...); its own inverse with both swapped.

    Three matrices (3, ranks, rows) on top of each other become, rank after rank, that rank's part of each.
    """
    parts = tensor.view(outer, inner, -1, *tensor.shape[1:])
    return parts.transpose(0, 1).flatten(0, 2).contiguous()


class _SequenceNorm(ParallelStyle):
    """Each rank normalises some positions (dim 1); input and output are whole on every rank."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return distribute_module(module, device_mesh, None, _share_positions, _join_positions)  # type: ignore[arg-type]


def _own(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    """A copy: models may change what a layer returns in place, which torch forbids for views of a DTensor."""
    return output.clone()


def _share_positions(
    module: nn.Module, inputs: tuple[Any, ...], mesh: DeviceMesh
) -> tuple[Any, ...]:
    whole = DTensor.from_local(inputs[0], mesh, [Replicate()], run_check=False)
    return (whole.redistribute(placements=[Shard(1)]), *inputs[1:])


def _join_positions(module: nn.Module, outputs: Any, mesh: DeviceMesh) -> Any:
    return outputs.redistribute(placements=[Replicate()]).to_local()
