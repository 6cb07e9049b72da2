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
from workers.parallel.base import ModuleStrategy
from workers.parallel.transfers import contiguous, from_rank_0, is_sharded

RESHARD_AFTER_FORWARD = Option(
    "reshard_after_forward",
    "free gathered parameters after forward, and gather them again in backward",
    True,
    (True, False),
    affects=COMPUTES_THE_SAME,
)


class FSDP(ModuleStrategy):
    """torch's `fully_shard` (FSDP2), after Zhao et al. 2023 (https://arxiv.org/abs/2304.11277).

    Each layer of the workload's plan is gathered when it is needed. Under a half precision it is
    gathered in that format, so that no rank keeps copies of weights in a second format until
    backward; gradients are reduced in fp32 unless `reduction_precision` is half. Rank 0 builds the
    model in CPU memory, the other ranks build it without memory and receive one layer at a time: no
    device ever holds the whole.
    """

    needs = StrategyNeeds(
        "parameters, gradients and optimizer state sharded over ranks, the batch shared out",
        plan=("layers",),
    )
    options = (RESHARD_AFTER_FORWARD,)
    axis = "shard"
    mesh_axes: ClassVar[tuple[str, ...]] = ("shard",)  # replicas first, if there are any

    @property
    def build_device(self) -> torch.device:
        """The CPU on rank 0, elsewhere no memory."""
        return torch.device("meta" if self.mesh.rank else "cpu")

    def wrap(self, model: nn.Module) -> None:
        """Shard each layer, then the rest of the model."""
        mesh = self.mesh.device_mesh(self.device)[self.mesh_axes]
        half = HALF.get(PRECISION.value(self.values))
        full = torch.float32 if half else None
        settings: dict[str, Any] = {
            "mesh": mesh,
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
            receive(model.get_submodule(name))
            fully_shard(model.get_submodule(name), **settings)
        receive(model)
        fully_shard(model, **settings)
        self.plain = model
        self.model = model

    def synchronised(self, last: bool) -> AbstractContextManager[Any]:
        """Gradients stay whole on each rank until the last microbatch."""
        cast(FSDPModule, self.model).set_requires_gradient_sync(last)
        return nullcontext()


def receive(module: nn.Module) -> None:
    """Give tensors without memory those of rank 0, except in parts that are sharded already.

    They lie on the CPU then. All ranks call it for the same module.
    """
    made: dict[int, Any] = {}  # a tensor that several modules use stays one
    for part in module.modules():
        for held in (part._parameters, part._buffers):
            for name, tensor in held.items():
                if tensor is None or is_sharded(tensor):
                    continue
                if id(tensor) not in made:
                    made[id(tensor)] = _received(tensor)
                held[name] = made[id(tensor)]


def _received(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_meta:
        from_rank_0(tensor.detach().cpu())
        return tensor
    whole = from_rank_0(torch.empty_like(tensor, device="cpu"))
    is_parameter = isinstance(tensor, nn.Parameter)
    return nn.Parameter(whole, tensor.requires_grad) if is_parameter else whole
