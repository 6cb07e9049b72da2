"""The process group of a trial's ranks: where they meet, how it is made, and how it ends.

`connect` makes the default process group of a workload. An objective of the user makes its own, as
under torchrun: `process_groups_of` lets it find the other ranks (see `meeting`). The processes
themselves are started by `workers.runtime`.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final
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
_watches: list[PeerWatch] = []
# torch has no public way to replace a handler, and `env` is that of `init_process_group` without
# an address. If there are none, a second group may fail as it does under torchrun.
_MODULE: Final = importlib.import_module("torch.distributed.rendezvous")  # a function hides it
_HANDLERS: Final[dict[str, Any]] = getattr(_MODULE, "_rendezvous_handlers", {})


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
    traces: str = "",
) -> None:
    """Join the default process group of the trial.

    On GPUs, collective calls end if another rank dies, or after ten minutes.

    Args:
        rank: of this process.
        world_size: the number of ranks.
        rendezvous: "file:///PATH", or "tcp://HOST:PORT" of a store that listens already.
        device: of this rank.
        backend: of torch.distributed; by default gloo for CPU tensors and nccl for CUDA tensors.
        traces: if a collective call between GPUs fails, each rank writes the last ones to a file
            whose name begins so; "" for nowhere.

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
    if on_gpus and traces:
        os.environ.update(flight_recorder(traces))
    host, port, file = address(rendezvous)
    _store[:] = [FileStore(file, world_size) if file else server_at(host, port)]
    dist.init_process_group(
        chosen,
        store=PrefixStore("ranks", _store[0]),
        rank=rank,
        world_size=world_size,
        timeout=WAIT_FOR_GPUS if on_gpus else WAIT_FOR_RANKS,
    )
    if on_gpus:
        _watches[:] = [PeerWatch(abort_gpu_groups)]


def flight_recorder(traces: str) -> dict[str, str]:
    """The variables that turn on the flight recorder of NCCL's calls; the user's own have priority.

    Both names of a variable: torch 2.9 has renamed some.
    """
    wanted = {
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    }
    kept = {name: os.environ.get(name, value) for name, value in wanted.items()}
    files = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
    return {**kept, **dict.fromkeys(files, traces)}


def abort_gpu_groups() -> None:
    """End all collective calls between GPUs that run now; they raise in the thread that waits."""
    gpu = torch.device("cuda")
    backends: list[Any] = []
    for group in list(dist.distributed_c10d._world.pg_names):
        with contextlib.suppress(RuntimeError):  # a group of CPUs
            backends.append(group._get_backend(gpu))
    # As one group, because several communicators could wait for each other (pytorch#119797).
    for backend in backends[:1]:
        backend._group_start()
    for backend in backends:
        backend.abort()
    for backend in backends[:1]:
        backend._group_end()


class PeerWatch:
    """Notices that another rank has died or failed; NCCL does not.

    Ranks are connected by a gloo group of their own, whose connections break with a process. All
    ranks must make it together.

    Args:
        on_loss: called once, in a thread, when the first other rank is gone.
    """

    def __init__(self, on_loss: Callable[[], None]) -> None:
        self._on_loss = on_loss
        self._lock = threading.Lock()
        self._over = False
        self._group = dist.new_group(backend="gloo", timeout=WAIT_FOR_RANKS)
        self._peers = [rank for rank in range(dist.get_world_size()) if rank != dist.get_rank()]
        for peer in self._peers:
            threading.Thread(target=self._watch, args=(peer,), name="peer", daemon=True).start()

    def leave(self, *, failed: bool) -> None:
        """Tell the other ranks how this one ends, and watch no more."""
        self._over = True
        for peer in self._peers:
            with contextlib.suppress(RuntimeError):  # it is gone already
                dist.send(torch.tensor([float(failed)]), dst=peer, group=self._group)

    def _watch(self, peer: int) -> None:
        farewell = torch.ones(1)
        with contextlib.suppress(Exception):  # of several types, if the connection breaks
            dist.recv(farewell, src=peer, group=self._group)
        if not farewell.item():
            return
        with self._lock:
            first = not self._over
            self._over = True
        if first:
            self._on_loss()


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
        failed: this rank has failed, so that the others must not wait for it. Its own collective
            calls between GPUs are aborted first: to destroy a group waits for them, and the other
            ranks abort theirs as soon as they learn of the failure.
    """
    if failed and _watches:
        with contextlib.suppress(RuntimeError):  # a communicator that has failed already
            abort_gpu_groups()
    for watch in _watches:
        watch.leave(failed=failed)
    _watches.clear()
    _side.clear()
    _store.clear()
    if dist.is_initialized():
        dist.destroy_process_group()
    _forget_meshes()


def _forget_meshes() -> None:
    """Empty the caches of DTensor, whose entries name the process groups of the mesh that is gone.

    A mesh of the next trial with the same shape would find them if this rank has another number.
    torch clears them in `torch.distributed.tensor.debug`, whose import takes a second.
    """
    if dtensor := sys.modules.get("torch.distributed.tensor"):
        dtensor.DTensor._op_dispatcher.sharding_propagator.propagate_op_sharding.cache_clear()
        getattr(torch._C, "_clear_DTensor_sharding_propagator_cache", lambda: None)()
    planning = sys.modules.get("torch.distributed.tensor._redistribute")
    for name in ("clear_redistribute_planner_cache", "_gen_transform_infos"):
        clear: Any = getattr(planning, name, None)
        if clear is not None:
            getattr(clear, "cache_clear", clear)()


@contextlib.contextmanager
def process_groups_of(variables: Mapping[str, str]) -> Iterator[None]:
    """While inside, `init_process_group` finds the other ranks by these environment variables."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        with _numbered():
            yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextlib.contextmanager
def _numbered() -> Iterator[None]:
    """While inside, each `init_process_group` of this process has keys of its own.

    All process groups of an attempt meet at one store, which outlives them. gloo reads the
    addresses of the other ranks there: without this, a second group may find those of the first.
    """
    original = _HANDLERS.get("env")
    if original is None:
        yield
        return
    numbers = itertools.count()

    def numbered(*arguments: Any, **settings: Any) -> Iterator[Any]:
        prefix = f"group-{next(numbers)}"
        for store, rank, world_size in original(*arguments, **settings):
            yield PrefixStore(prefix, store), rank, world_size

    _HANDLERS["env"] = numbered
    try:
        yield
    finally:
        _HANDLERS["env"] = original
