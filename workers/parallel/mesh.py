"""The grid that the ranks of a trial form, its axes, and stages of balanced cost."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from search_spaces.errors import UsageError
from search_spaces.knobs import Option

AXES = ("data", "shard", "pipeline", "tensor")
BACKEND = Option(
    "backend", "backend of torch.distributed; by default gloo on CPUs, nccl on GPUs", ""
)


@dataclass(frozen=True)
class Mesh:
    """Degrees of each kind of parallelism; their product is the world size.

    The last axis varies fastest.

    Args:
        data: replicas of the model, each with its rows of the batch.
        shard: ranks that share one replica's parameters and optimizer state, each with its rows of
            the batch.
        pipeline: stages of the layers.
        tensor: ranks that share each matrix product.
        rank, world_size: of this process.

    Raises:
        UsageError: a degree is below 1, or the product is not the world size.
    """

    rank: int = 0
    world_size: int = 1
    data: int = 1
    shard: int = 1
    pipeline: int = 1
    tensor: int = 1

    def __post_init__(self) -> None:
        degrees = {axis: getattr(self, axis) for axis in AXES}
        text = " x ".join(f"{axis} {degree}" for axis, degree in degrees.items())
        if min(degrees.values()) < 1:
            raise UsageError(f"every degree of a mesh is at least 1, got {text}")
        if math.prod(degrees.values()) != self.world_size:
            raise UsageError(
                f"the degrees of a mesh multiply to the number of ranks, "
                f"got {text} for {self.world_size} ranks"
            )

    def coordinate(self, axis: str) -> int:
        """This rank's place on an axis."""
        degrees: list[int] = [getattr(self, name) for name in AXES[AXES.index(axis) :]]
        return self.rank // math.prod(degrees[1:]) % degrees[0]

    def device_mesh(self, device: torch.device) -> DeviceMesh:
        """The torch mesh with the same axes; all ranks must call it."""
        shape = tuple(getattr(self, axis) for axis in AXES)
        return init_device_mesh(device.type, shape, mesh_dim_names=AXES)


def balanced(costs: Sequence[float], num_stages: int) -> list[range]:
    """The contiguous parts, none empty, whose largest cost is as small as possible.

    Args:
        costs: of each layer, in order of execution, such as its number of parameters.
        num_stages: the number of parts.

    Raises:
        UsageError: there are fewer layers than stages.
    """
    if not 1 <= num_stages <= len(costs):
        raise UsageError(f"{len(costs)} layers cannot be cut into {num_stages} stages")
    # best[k, n]: (largest cost, first layer of the last part) of the first n layers in k parts
    best = {(1, n): (sum(costs[:n]), 0) for n in range(1, len(costs) + 1)}
    for parts in range(2, num_stages + 1):
        for n in range(parts, len(costs) + 1):
            cuts = (
                (max(best[parts - 1, cut][0], sum(costs[cut:n])), cut)
                for cut in range(parts - 1, n)
            )
            best[parts, n] = min(cuts)
    stages: list[range] = []
    end = len(costs)
    for parts in range(num_stages, 0, -1):
        begin = best[parts, end][1]
        stages.insert(0, range(begin, end))
        end = begin
    return stages
