"""Fully sharded data parallelism: parameters, gradients and optimizer state in equal parts."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, cast

import torch
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard

from search_spaces.knobs.base import COMPUTES_THE_SAME, Option
from search_spaces.knobs.parallelism import StrategyNeeds
from search_spaces.knobs.table import CPU_OFFLOAD, PRECISION, REDUCTION
from workers.device.precision import HALF
from workers.parallel.base import Strategy
from workers.parallel.mesh import contiguous

RESHARD_AFTER_FORWARD = Option(
    "reshard_after_forward",
    "free gathered parameters after forward, and gather them again in backward",
    True,
    (True, False),
    affects=COMPUTES_THE_SAME,
)


class FSDP(Strategy):
    """torch's `fully_shard` (FSDP2), after Zhao et al. 2023 (https://arxiv.org/abs/2304.11277).

    Each layer of the workload's plan is gathered when it is needed. Under a half precision it is
    gathered in that format, so that no rank keeps copies of weights in a second format until
    backward; gradients are reduced in fp32 unless `reduction_precision` is half. Ranks build the
    model in CPU memory and shard one layer at a time: no GPU ever holds the whole.
    """

    needs = StrategyNeeds(
        "parameters, gradients and optimizer state sharded over ranks, the batch shared out",
        plan=("layers",),
    )
    options = (RESHARD_AFTER_FORWARD,)
    axis = "shard"
    mesh_axes: ClassVar[tuple[str, ...]] = ("shard",)  # replicas first, if there are any

    def wrap(self, model: nn.Module) -> None:
        """Shard each layer, then the rest of the model."""
        half = HALF.get(PRECISION.value(self.values))
        full = torch.float32 if half else None
        settings: dict[str, Any] = {
            "mesh": self.mesh.device_mesh(self.device)[self.mesh_axes],
            "reshard_after_forward": bool(RESHARD_AFTER_FORWARD.value(self.values)),
            # Layers take their inputs in the same format: kernels of CPUs mix formats only so.
            "mp_policy": MixedPrecisionPolicy(
                param_dtype=half,
                reduce_dtype=half if REDUCTION.value(self.values) == "half" else full,
            ),
        }
        if CPU_OFFLOAD.value(self.values):
            settings["offload_policy"] = CPUOffloadPolicy(pin_memory=self.device.type == "cuda")
        contiguous(model)
        for name in self.workload.plan(model).layers:
            fully_shard(model.get_submodule(name), **settings)
        fully_shard(model, **settings)
        self.plain = self.model = model

    def synchronised(self, last: bool) -> AbstractContextManager[Any]:
        cast(FSDPModule, self.model).set_requires_gradient_sync(last)
        return nullcontext()
