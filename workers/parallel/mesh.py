"""The ranks of a trial: the grid that they form, and the process group in which they meet.

`connect` makes the default process group of a trial with several ranks (a gang). The processes
themselves are started by `workers.runtime`.
"""

import math
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, PrefixStore, Store, TCPStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from search_spaces.errors import UsageError
from search_spaces.knobs import Option

AXES = ("data", "shard", "pipeline", "tensor")
BACKEND = Option(
    "backend", "backend of torch.distributed; by default gloo on CPUs, nccl on GPUs", ""
)
# Ranks wait this long, because rank 0 may evaluate for hours. A rank that dies breaks its
# connections at once; the dispatcher ends one that hangs.
WAIT_FOR_RANKS = timedelta(hours=12)
WAIT_TO_CONNECT = timedelta(minutes=5)
# Like torch's default process group, these belong to the process; `disconnect` clears them.
_side: list[dist.ProcessGroup] = []
_store: list[Store] = []


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
        UsageError: a degree is below 1, the product is not the world size, or the rank is outside
            of it.
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
        """The torch mesh with the same axes; all ranks must call it."""
        shape = tuple(getattr(self, axis) for axis in AXES)
        return init_device_mesh(device.type, shape, mesh_dim_names=AXES)


def connect(
    rank: int, world_size: int, rendezvous: str, device: torch.device, backend: str = ""
) -> None:
    """Join the default process group of the trial.

    Args:
        rank: of this process.
        world_size: the number of ranks.
        rendezvous: "file:///PATH", or "tcp://HOST:PORT" of a store that listens already.
        device: of this rank.
        backend: of torch.distributed; by default gloo for CPU tensors and nccl for CUDA tensors.

    Raises:
        UsageError: there is no rendezvous, or torch was built without the backend.
    """
    if not rendezvous:
        raise UsageError(f"{world_size} ranks need a rendezvous, got none")
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
        timeout=WAIT_FOR_RANKS,
    )


def _meet(rendezvous: str, world_size: int) -> Store:
    """The store of the ranks' addresses: a file, or the server that rank 0's worker started."""
    place = urlsplit(rendezvous)
    if place.scheme == "file":
        return FileStore(place.path, world_size)
    if place.scheme != "tcp" or place.hostname is None or place.port is None:
        raise UsageError(f"a rendezvous is file:///PATH or tcp://HOST:PORT, got {rendezvous!r}")
    return TCPStore(place.hostname, place.port, is_master=False, timeout=WAIT_TO_CONNECT)


def side_store(prefix: str) -> Store:
    """A part of the ranks' store, for another library that needs one; call it after `connect`."""
    return PrefixStore(prefix, _store[0])


def side_group() -> dist.ProcessGroup:
    """A gloo group of all ranks for CPU tensors and objects; all ranks must make the first call."""
    if not _side:
        _side.append(dist.new_group(backend="gloo", timeout=WAIT_FOR_RANKS))
    return _side[0]


def disconnect() -> None:
    """Leave the default process group if there is one."""
    _side.clear()
    _store.clear()
    if dist.is_initialized():
        dist.destroy_process_group()
