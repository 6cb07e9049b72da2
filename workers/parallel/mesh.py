"""The grid that the ranks of a trial form, stages of balanced cost, and tensors from rank to rank.

`torch.distributed.checkpoint` does not take all tensors. To load, its `set_state_dict` sends the
optimizer state of parameters that rank 0 holds, and no rank holds all under a pipeline or an
embedding server. It makes the state by a step with zero gradients, which SparseAdam refuses. It
unpickles what it reads from files. So `Strategy.gather` makes each tensor whole, and
`Strategy.scatter` takes a rank's part of it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor

from search_spaces.errors import UsageError
from search_spaces.knobs import Option
from workers.ranks import side_group, value_of_rank_0

Tensors = dict[str, Tensor]
Key = TypeVar("Key")
_utils: Any = torch._utils  # is not typed
_BUCKET_BYTES = 25 * 2**20  # as in torch's DistributedDataParallel
AXES = ("data", "shard", "pipeline", "tensor")
BACKEND = Option(
    "backend", "backend of torch.distributed; by default gloo on CPUs, nccl on GPUs", ""
)


@dataclass(frozen=True)
class Mesh:
    """Degrees of each kind of parallelism, see `Strategy.degrees`; their product is the world size.

    The last axis varies fastest.

    Args:
        data: replicas of the model, each with its rows of the batch.
        shard: ranks that share one replica's parameters and optimizer state, each with its rows of
            the batch.
        pipeline: stages of the layers.
        tensor: ranks that share each matrix product.
        rank, world_size: of this process.
    """

    rank: int = 0
    world_size: int = 1
    data: int = 1
    shard: int = 1
    pipeline: int = 1
    tensor: int = 1

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

    @cache
    def best(end: int, parts: int) -> tuple[float, list[range]]:
        """The largest cost of the first `end` layers in so many parts, and the parts."""
        if parts == 1:
            return sum(costs[:end]), [range(end)]
        found = [(best(cut, parts - 1), cut) for cut in range(parts - 1, end)]
        cost, cut, before = min(
            ((max(c, sum(costs[i:end])), i, b) for (c, b), i in found), key=lambda one: one[:2]
        )
        return cost, [*before, range(cut, end)]

    return best(len(costs), num_stages)[1]


def collected(mine: Mapping[Key, Tensor]) -> dict[Key, Tensor]:
    """The tensors of all ranks by name, on rank 0; empty on other ranks."""
    everyone: list[Any] | None = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    # What rank 0 has is not sent: pickled and padded, it would take several times its memory.
    dist.gather_object({} if everyone else mine, everyone, dst=0, group=side_group())
    found = [mine, *everyone] if everyone else []
    return {name: tensor for one in found for name, tensor in one.items()}


def sent(mine: Mapping[Key, Tensor]) -> Iterator[tuple[Key, Tensor]]:
    """The tensors of rank 0 by name, on the CPU; each rank holds one of them at a time.

    All ranks take part until the end. What ranks other than 0 pass is ignored.
    """
    receives = dist.is_initialized() and dist.get_rank() > 0
    for name, shape, dtype in value_of_rank_0([(n, t.shape, t.dtype) for n, t in mine.items()]):
        whole = torch.empty(shape, dtype=dtype) if receives else mine[name].cpu()
        yield name, from_rank_0(whole)


def from_rank_0(tensor: Tensor) -> Tensor:
    """The tensor of rank 0 with this shape; other ranks' is overwritten. It lies on the CPU."""
    if not dist.is_initialized():
        return tensor
    tensor = tensor.contiguous()
    # Bytes, because gloo does not know every number format.
    dist.broadcast(tensor.detach().view(-1).view(torch.uint8), src=0, group=side_group())
    return tensor


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that lies on this rank, sharing its memory; of a sparse one its rows."""
    if isinstance(tensor, DTensor):
        return tensor.to_local()
    return tensor._values() if tensor.is_sparse else tensor


def contiguous(model: nn.Module) -> None:
    """Lay whole parameters out contiguously: sharding and pipelining take no channels_last."""
    for parameter in model.parameters():
        if not isinstance(parameter, DTensor):
            parameter.data = parameter.data.contiguous()


def sum_over(group: dist.ProcessGroup, tensors: Sequence[Tensor]) -> None:
    """Sum each tensor over the ranks of a group in place, in few calls: each has a latency."""
    for bucket in _utils._take_tensors(tensors, _BUCKET_BYTES):
        joined = _utils._flatten_dense_tensors(bucket)
        dist.all_reduce(joined, group=group)
        torch._foreach_copy_(bucket, _utils._unflatten_dense_tensors(joined, bucket))
