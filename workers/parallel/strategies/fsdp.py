"""Fully sharded data parallelism: parameters, gradients and optimizer state in equal parts."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard

from search_spaces.knobs.option import COMPUTES_THE_SAME, Option
from search_spaces.knobs.parallelism import StrategyNeeds
from workers.parallel.base import contiguous
from workers.parallel.module import ModuleStrategy

RESHARD_AFTER_FORWARD = Option(
    "reshard_after_forward",
    "free gathered parameters after forward, and gather them again in backward",
    True,
    (True, False),
    affects=COMPUTES_THE_SAME,
)


class FSDP(ModuleStrategy):
    """torch's `fully_shard` (FSDP2), after Zhao et al. 2023 (https://arxiv.org/abs/2304.11277).

    Each layer of the workload's plan is gathered when it is needed.
    """

    needs = StrategyNeeds(
        "parameters, gradients and optimizer state sharded over ranks, the batch shared out",
        plan=("layers",),
    )
    options = (RESHARD_AFTER_FORWARD,)
    axis = "shard"

    def wrap(self, model: nn.Module) -> None:
        """Shard each layer, then the rest of the model."""
        mesh = self.mesh.device_mesh(self.device)["shard"]
        reshard = bool(RESHARD_AFTER_FORWARD.value(self.values))
        contiguous(model)
        for name in self.workload.plan(model).layers:
            fully_shard(model.get_submodule(name), mesh=mesh, reshard_after_forward=reshard)
        fully_shard(model, mesh=mesh, reshard_after_forward=reshard)
        self.plain = model
        self.model = model

    def synchronised(self, last: bool) -> AbstractContextManager[Any]:
        """Gradients stay whole on each rank until the last microbatch."""
        cast(FSDPModule, self.model).set_requires_gradient_sync(last)
        return nullcontext()
