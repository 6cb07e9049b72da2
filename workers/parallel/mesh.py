"""The ranks of a trial arranged in a grid: one validated object owns the degrees."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, PrefixStore, Store, TCPStore

from search_spaces.errors import UsageError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

AXES = ("data", "shard", "pipeline", "tensor")
# Others wait while rank 0 evaluates; a rank that is gone breaks its connections at once, and one that hangs is
# the dispatcher's to notice.
PATIENCE = timedelta(hours=12)
CONNECT = timedelta(minutes=5)
_side: list[dist.ProcessGroup] = []
_store: list[Store] = []


@dataclass(frozen=True)
class Mesh:
    """Degrees of each kind of parallelism; their product is the world size. The last axis varies fastest.

    Args:
        data: replicas of the model, each with its rows of the batch.
        shard: ranks that share one replica's parameters and optimizer state, each with its rows of the batch.
        pipeline: stages of the layers.
        tensor: ranks that share each matrix product.
        rank, world_size: of this process.

    Raises:
        UsageError: a degree is below 1, the product is not the world size, or the rank is outside of it.
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
                f"the degrees of a mesh multiply to the number of ranks, got {text} for {self.world_size} ranks"
            )
        if not 0 <= self.rank < self.world_size:
            raise UsageError(f"a rank is from 0 to {self.world_size - 1}, got {self.rank}")

    def coordinate(self, axis: str) -> int:
        """This rank's place on an axis."""
        place = self.rank
        for name in reversed(AXES):
            place, here = divmod(place, int(getattr(self, name)))
            if name == axis:
                return here
        raise UsageError(f"an axis of a mesh is one of {', '.join(AXES)}, got {axis!r}")

    def device_mesh(self, device: torch.device) -> DeviceMesh:
        """The torch mesh with the same axes; a collective call of all ranks."""
        from torch.distributed.device_mesh import init_device_mesh

        shape = tuple(getattr(self, axis) for axis in AXES)
        return init_device_mesh(device.type, shape, mesh_dim_names=AXES)


def connect(
    rank: int, world_size: int, rendezvous: str, device: torch.device, backend: str = ""
) -> None:
    """Join the default process group: gloo for CPU tensors, nccl for CUDA tensors unless `backend` says otherwise.

    Raises:
        UsageError: several ranks have no rendezvous, or torch was built without the backend.
    """
    if not rendezvous:
        raise UsageError(f"{world_size} ranks need a rendezvous to meet at, got none")
    chosen = backend or ("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    for name in [part.split(":")[-1] for part in chosen.split(",")]:
        if not dist.is_backend_available(name):
            raise UsageError(f"this build of torch has no {name} backend")
    _store[:] = [_meet(rendezvous, world_size)]
    dist.init_process_group(
        chosen,
        store=PrefixStore("ranks", _store[0]),
        rank=rank,
        world_size=world_size,
        timeout=PATIENCE,
    )


def _meet(rendezvous: str, world_size: int) -> Store:
    """What the ranks exchange addresses through: a file, or the server that rank 0's worker has started."""
    place = urlsplit(rendezvous)
    if place.scheme == "file":
        return FileStore(place.path, world_size)
    if place.scheme != "tcp" or place.hostname is None or place.port is None:
        raise UsageError(f"a rendezvous is file:///PATH or tcp://HOST:PORT, got {rendezvous!r}")
    return TCPStore(place.hostname, place.port, is_master=False, timeout=CONNECT)


def side_store(prefix: str) -> Store:
    """A part of the ranks' store for further libraries that must meet; after `connect`."""
    return PrefixStore(prefix, _store[0])


def side_group() -> dist.ProcessGroup:
    """A gloo group of all ranks for CPU tensors and objects; the first call is collective."""
    if not _side:
        _side.append(dist.new_group(backend="gloo", timeout=PATIENCE))
    return _side[0]


def disconnect() -> None:
    """Leave the default process group where there is one."""
    _side.clear()
    _store.clear()
    if dist.is_initialized():
        dist.destroy_process_group()
