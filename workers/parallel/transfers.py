"""Tensors of sharded and replicated models, and their way from rank to rank."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from workers.ranks.process_group import side_group

Tensors = dict[str, Tensor]
_BUCKET_BYTES = 25 * 2**20  # as in torch's DistributedDataParallel


def collected(mine: Tensors) -> Tensors:
    """The tensors of all ranks by name, on rank 0; empty on other ranks."""
    everyone: list[Any] | None = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(mine, everyone, dst=0, group=side_group())
    return {name: tensor for found in everyone or () for name, tensor in found.items()}


def sent(mine: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """The tensors of rank 0 by name, on the CPU; each rank holds one of them at a time.

    All ranks take part until the end. What ranks other than 0 pass is ignored.
    """
    if not dist.is_initialized():
        yield from mine.items()
        return
    headers = [[(name, t.shape, t.dtype) for name, t in mine.items()] if not dist.get_rank() else 0]
    dist.broadcast_object_list(headers, src=0, device=torch.device("cpu"), group=side_group())
    entries: Any = headers[0]
    for name, shape, dtype in entries:
        tensor = torch.empty(shape, dtype=dtype) if dist.get_rank() else mine[name].cpu()
        yield name, from_rank_0(tensor)


def from_rank_0(tensor: Tensor) -> Tensor:
    """The tensor of rank 0 with this shape; other ranks' is overwritten. It lies on the CPU."""
    tensor = tensor.contiguous()
    if dist.get_world_size() == 1:
        return tensor
    # Bytes, because gloo does not know every number format.
    dist.broadcast(tensor.detach().view(-1).view(torch.uint8), src=0, group=side_group())
    return tensor


def by_key(joined: Tensors) -> dict[str, Tensors]:
    """Tensors named "PARAMETER|KEY" by key, then by parameter."""
    result: dict[str, Tensors] = {}
    for text, tensor in joined.items():
        name, _, key = text.rpartition("|")
        result.setdefault(key, {})[name] = tensor
    return result


def load_moments(
    optimizer: Optimizer,
    parameters: Mapping[str, nn.Parameter],
    joined: Iterable[tuple[str, Tensor]],
    scatter: Callable[[Tensor, Tensor, str], Tensor],
) -> None:
    """Overwrite an optimizer's state, as far as it is of its parameters.

    Args:
        optimizer: whose state is overwritten.
        parameters: of this rank by name.
        joined: whole tensors by "PARAMETER|KEY".
        scatter: gives this rank's part of a whole tensor; see `Strategy.scatter`.
    """
    mine = {p for g in optimizer.param_groups for p in g["params"]}
    groups = [g for g in optimizer.param_groups if g.get("fused") or g.get("capturable")]
    fused = {p for g in groups for p in g["params"]}
    found: dict[str, dict[str, Tensor]] = {}
    for text, value in joined:
        name, _, key = text.rpartition("|")
        parameter = parameters.get(name)
        if parameter is None or parameter not in mine:
            continue
        entries = found.setdefault(name, {})
        if value.shape != parameter.shape:
            counts_steps = value.ndim == 0 and parameter not in fused
            device = torch.device("cpu") if counts_steps else parameter.device
            entries[key] = value.to(device, copy=True)
        else:
            part = scatter(value, parameter, name)
            # A fused step needs parameter and state in the same memory format.
            like = part if is_sharded(part) else parameter.detach()
            entries[key] = torch.empty_like(like, dtype=part.dtype).copy_(part)
    for name, entries in found.items():
        optimizer.state[parameters[name]] = entries


def own_part(optimizer: Optimizer) -> Optimizer:
    """The optimizer of the parameters that this rank updates; under ZeRO-1 these are not all."""
    own: Optimizer = getattr(optimizer, "optim", optimizer)
    return own


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
    """Sum each tensor over the ranks of a group in place, in few collective calls.

    Tensors of one format are sent together, `_BUCKET_BYTES` at a time; each call has a latency.
    """
    by_kind: dict[Any, list[Tensor]] = {}
    for tensor in tensors:
        by_kind.setdefault((tensor.dtype, tensor.device), []).append(tensor)
    for alike in by_kind.values():
        for bucket in _buckets(alike):
            joined = torch.cat([tensor.reshape(-1) for tensor in bucket])
            dist.all_reduce(joined, group=group)
            sizes = [tensor.numel() for tensor in bucket]
            parts = [p.view_as(t) for p, t in zip(torch.split(joined, sizes), bucket, strict=True)]
            torch._foreach_copy_(bucket, parts)


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    for tensor in tensors:
        bucket.append(tensor)
        if sum(t.nbytes for t in bucket) >= _BUCKET_BYTES:
            yield bucket
            bucket = []
    if bucket:
        yield bucket
