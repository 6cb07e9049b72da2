"""The process group of a trial's ranks: where they meet, how it is made, and how it ends.

`connect` makes the default process group of a workload. An objective of the user makes its own, as
under torchrun: `process_groups_of` lets it find the other ranks (see `meeting`). The processes
themselves are started by `workers.runtime`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, PrefixStore, Store, TCPStore

from search_spaces.errors import UsageError

# Ranks wait this long, because rank 0 may evaluate for hours. A rank that dies breaks its
# connections at once; the dispatcher ends one that hangs.
WAIT_FOR_RANKS = timedelta(hours=12)
WAIT_TO_CONNECT = timedelta(minutes=5)
# Ranks meet at gloo before each update, so a collective call between GPUs waits for no evaluation.
WAIT_FOR_GPUS = timedelta(minutes=10)
# Like torch's default process group, these belong to the process; `disconnect` clears them.
_side: list[dist.ProcessGroup] = []
_store: list[Store] = []


def address(rendezvous: str) -> tuple[str, int, str]:
    """The host and port of a server, or the path of a file, at which ranks meet.

    Raises:
        UsageError: it is neither "tcp://HOST:PORT" nor "file:///PATH".
    """
    place = urlsplit(rendezvous)
    if place.scheme == "file" and place.path:
        return "", 0, place.path
    if place.scheme != "tcp" or place.hostname is None or place.port is None:
        raise UsageError(f"a rendezvous is file:///PATH or tcp://HOST:PORT, got {rendezvous!r}")
    return place.hostname, place.port, ""


def server_at(host: str, port: int) -> TCPStore:
    """A connection to the server of a store that listens already."""
    return TCPStore(host, port, is_master=False, timeout=WAIT_TO_CONNECT)


def connect(
    rank: int,
    world_size: int,
    rendezvous: str,
    device: torch.device,
    backend: str = "",
) -> None:
    """Join the default process group of the trial.

    On GPUs, collective calls end after ten minutes. The gang of a rank that dies ends sooner.

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
    on_gpus = device.type == "cuda"
    chosen = backend or ("cpu:gloo,cuda:nccl" if on_gpus else "gloo")
    for name in [part.split(":")[-1] for part in chosen.split(",")]:
        if not dist.is_backend_available(name):
            raise UsageError(f"this build of torch has no {name} backend")
    host, port, file = address(rendezvous)
    _store[:] = [FileStore(file, world_size) if file else server_at(host, port)]
    dist.init_process_group(
        chosen,
        store=PrefixStore("ranks", _store[0]),
        rank=rank,
        world_size=world_size,
        timeout=WAIT_FOR_GPUS if on_gpus else WAIT_FOR_RANKS,
    )


def side_store(prefix: str) -> Store:
    """A part of the ranks' store, for another library that needs one; call it after `connect`."""
    return PrefixStore(prefix, _store[0])


def side_group() -> dist.ProcessGroup:
    """A gloo group of all ranks for CPU tensors and objects; all ranks must make the first call."""
    if not _side:
        _side.append(dist.new_group(backend="gloo", timeout=WAIT_FOR_RANKS))
    return _side[0]


def value_of_rank_0(mine: Any) -> Any:
    """The value of rank 0, which can be pickled, on every rank; `mine` if there is one rank."""
    if not dist.is_initialized():
        return mine
    box = [mine]
    dist.broadcast_object_list(box, src=0, device=torch.device("cpu"), group=side_group())
    return box[0]


def disconnect(*, failed: bool = False) -> None:
    """Leave the default process group if there is one.

    Args:
        failed: this rank has failed. Its process ends soon, and those of the other ranks, so it
            does not wait for them: to destroy a group of GPUs would.
    """
    if failed:
        return
    _side.clear()
    _store.clear()
    if dist.is_initialized():
        dist.destroy_process_group()


@contextlib.contextmanager
def process_groups_of(variables: Mapping[str, str]) -> Iterator[None]:
    """While inside, `init_process_group` finds the other ranks by these environment variables."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
