"""Tensors of sharded and replicated models, and their way from rank to rank.

`torch.distributed.checkpoint` does not take all of them. To load, its `set_state_dict` sends the
optimizer state of parameters that rank 0 holds, and no rank holds all under a pipeline or an
embedding server. It makes the state by a step with zero gradients, which SparseAdam refuses. It
unpickles what it reads from files. So `Strategy.gather` makes each tensor whole, and
`Strategy.scatter` takes a rank's part of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from workers.ranks import side_group, value_of_rank_0

Tensors = dict[str, Tensor]
Key = TypeVar("Key")
_utils: Any = torch._utils  # is not typed
_BUCKET_BYTES = 25 * 2**20  # as in torch's DistributedDataParallel


def collected(mine: Mapping[Key, Tensor]) -> dict[Key, Tensor]:
    """The tensors of all ranks by name, on rank 0; empty on other ranks."""
    everyone: list[Any] | None = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(mine, everyone, dst=0, group=side_group())
    return {name: tensor for found in everyone or () for name, tensor in found.items()}


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
    if is_sharded(tensor):
        return tensor.to_local()
    return tensor._values() if tensor.is_sparse else tensor


def is_sharded(tensor: Tensor) -> TypeGuard[DTensor]:
    """Whether the tensor is a DTensor, without importing that class, which takes long."""
    return hasattr(tensor, "placements")


def contiguous(model: nn.Module) -> None:
    """Lay whole parameters out contiguously: sharding and pipelining take no channels_last."""
    for parameter in model.parameters():
        if not is_sharded(parameter):
            parameter.data = parameter.data.contiguous()


def sum_over(group: dist.ProcessGroup, tensors: Sequence[Tensor]) -> None:
    """Sum each tensor over the ranks of a group in place, in few calls: each has a latency."""
    for bucket in _utils._take_tensors(tensors, _BUCKET_BYTES):
        joined = _utils._flatten_dense_tensors(bucket)
        dist.all_reduce(joined, group=group)
        torch._foreach_copy_(bucket, _utils._unflatten_dense_tensors(joined, bucket))
