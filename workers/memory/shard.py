"""What a strategy leaves of a model on one rank, imitated on fake tensors for the estimate of memory."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from workers.workload import ParallelPlan


def tensor(model: nn.Module, plan: ParallelPlan, degree: int) -> int:
    """Leave a degree-th of the rows or columns of each planned matrix; returns the bytes of all other parameters."""
    if degree == 1:
        return 0
    planned: set[int] = set()
    for pattern, kind in plan.tensor.items():
        for name, module in model.named_modules():
            if fnmatch.fnmatchcase(name, pattern):
                _narrow(module, kind.partition(":")[0], degree)
                planned |= {id(parameter) for parameter in module.parameters()}
    return sum(parameter.nbytes for parameter in model.parameters() if id(parameter) not in planned)


def _narrow(module: nn.Module, kind: str, degree: int) -> None:
    dim = {"column": 0, "row": 1, "vocabulary": 0}.get(kind)
    weight = getattr(module, "weight", None)
    if dim is None or not isinstance(weight, Tensor):
        return
    shape = list(weight.shape)
    shape[dim] = -(-shape[dim] // degree)
    module.weight = nn.Parameter(torch.empty(shape))
    bias = getattr(module, "bias", None)
    if kind == "column" and isinstance(bias, Tensor):
        module.bias = nn.Parameter(torch.empty(shape[0]))


def served(model: nn.Module, plan: ParallelPlan) -> None:
    """Leave no rows of the embeddings that another rank serves."""
    for name in plan.embeddings:
        parent, _, child = name.rpartition(".")
        holder = model.get_submodule(parent) if parent else model
        setattr(holder, child, _Received(int(model.get_submodule(name).embedding_dim)))  # type: ignore[arg-type]


class _Received(nn.Module):
    """Rows that came over the network."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding_dim = width

    def forward(self, ids: Tensor) -> Tensor:
        return torch.empty(*ids.shape, self.embedding_dim, requires_grad=True)
