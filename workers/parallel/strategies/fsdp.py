"""Fully sharded data parallelism: parameters, gradients and optimizer state in equal parts on all ranks."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard

from workers.parallel.base import ModuleStrategy, contiguous
from workers.parallel.needs import Needs

__all__ = ["FSDP"]


class FSDP(ModuleStrategy):
    """torch's `fully_shard` (FSDP2), after Zhao et al. 2023 (https://arxiv.org/abs/2304.11277).

    Each layer of the workload's plan is gathered when it is needed. Option `reshard_after_forward` (True): give
    the gathered parameters back after forward and gather them again in backward, or keep them between.
    """

    needs = Needs(
        "parameters, gradients and optimizer state sharded over ranks, the batch shared out",
        plan=("layers",),
        parameters=(
            {
                "type": "choice",
                "name": "reshard_after_forward",
                "choices": [True, False],
                "default": True,
            },
        ),
    )

    @classmethod
    def degrees(cls, num_ranks: int, options: Mapping[str, Any]) -> dict[str, int]:
        """All ranks on the shard axis."""
        return {"shard": num_ranks}

    def wrap(self, model: nn.Module) -> None:
        """Shard each layer, then what is left of the model."""
        mesh = self.mesh.device_mesh(self.device)["shard"]
        reshard = bool(self.options.get("reshard_after_forward", True))
        contiguous(model)
        for name in self.workload.plan(model).layers:
            fully_shard(model.get_submodule(name), mesh=mesh, reshard_after_forward=reshard)
        fully_shard(model, mesh=mesh, reshard_after_forward=reshard)
        self.model = self.plain = model

    def synchronised(self, last: bool) -> AbstractContextManager[Any]:
        """Gradients stay whole on each rank until the last microbatch."""
        cast(FSDPModule, self.model).set_requires_gradient_sync(last)
        return nullcontext()
