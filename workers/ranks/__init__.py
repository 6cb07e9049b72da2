"""Where the ranks of a trial meet, the process group that they make, and how it ends.

`connect` makes the default process group of a workload. An objective of the user, or a command,
makes its own, as under torchrun: `Meeting` gives it the variables that torchrun sets. The first
rank's worker holds the store and its port for the whole attempt, so no other process can take the
port. The processes themselves are started by `workers.runtime`.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, PrefixStore, Store, TCPStore

# Ranks wait this long, because rank 0 may evaluate for hours. A rank that dies breaks its
# connections at once; the dispatcher ends one that hangs.
WAIT_FOR_RANKS = timedelta(hours=12)
WAIT_TO_CONNECT = timedelta(minutes=5)
# Ranks meet at gloo before each update, so a collective call between GPUs waits for no evaluation.
WAIT_FOR_GPUS = timedelta(minutes=10)
HERE: Final = "127.0.0.1"
PAUSE: Final = 0.005  # seconds between two looks at the store
# Like torch's default process group, these belong to the process; `disconnect` clears them.
_side: list[dist.ProcessGroup] = []
_store: list[Store] = []


def store_on(host: str) -> TCPStore:
    """A store on a free port of this machine, of which `host` is an address."""
    listener = socket.create_server((HERE if host == HERE else "", 0))
    port = listener.getsockname()[1]
    return TCPStore(
        host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
    )


def _store_at(rendezvous: str) -> Store:
    """The store of "file:///PATH", or of "tcp://HOST:PORT" that listens already."""
    place = urlsplit(rendezvous)
    if place.scheme == "file":
        return FileStore(place.path)
    return TCPStore(str(place.hostname), place.port or 0, is_master=False, timeout=WAIT_TO_CONNECT)


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
    """
    on_gpus = device.type == "cuda"
    _store[:] = [_store_at(rendezvous)]
    dist.init_process_group(
        backend or ("cpu:gloo,cuda:nccl" if on_gpus else "gloo"),
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


def values_of_all(mine: Any) -> list[Any]:
    """The values of all ranks, which can be pickled, in their order, on every rank."""
    if not dist.is_initialized():
        return [mine]
    found = [mine] * dist.get_world_size()
    dist.all_gather_object(found, mine, group=side_group())
    return found


def disconnect() -> None:
    """Leave the default process group if there is one.

    A rank that has failed does not: its process ends soon, and those of the other ranks. To destroy
    a group of GPUs would wait for them.
    """
    _side.clear()
    _store.clear()
    if dist.is_initialized():
        dist.destroy_process_group()


class Meeting:
    """One rank's connection to the store of its attempt, for a user's function or command.

    Args:
        rank, world_size: of this process.
        rendezvous: "tcp://HOST:PORT" of a store that listens already, or "file:///PATH" of a file
            on this machine; "" for one rank.
        own_gpus: this process sees its own GPUs alone, so its local rank is 0.
    """

    def __init__(self, rank: int, world_size: int, rendezvous: str, *, own_gpus: bool) -> None:
        self.rank = rank
        self.world_size = world_size
        self._own_gpus = own_gpus
        if not rendezvous.startswith("tcp:"):
            # Rank 0 opens a store on a free port; the others read the port from the file.
            file = _store_at(rendezvous) if rendezvous else None
            if rank == 0:
                self._server = store_on(HERE)
                rendezvous = f"tcp://{HERE}:{self._server.port}"
                if file is not None:
                    file.set("address", rendezvous)
            elif file is not None:
                rendezvous = file.get("address").decode()
        self._place = urlsplit(rendezvous)
        self._ours = PrefixStore("automl", _store_at(rendezvous))  # beside the keys of torch
        self._barriers = self._reports = 0  # of this rank

    def variables(self) -> Mapping[str, str]:
        """The environment variables of torchrun; every rank must call it.

        `torch.distributed.init_process_group` needs no more. If a rank has GPUs of its own, it is
        rank 0 of one on its machine: `cuda:0` is the first of the GPUs that it sees.
        """
        self._ours.set(f"machine/{self.rank}", socket.gethostname())
        machines = [self._ours.get(f"machine/{rank}") for rank in range(self.world_size)]
        here = [rank for rank, one in enumerate(machines) if one == machines[self.rank]]
        local = [self.rank] if self._own_gpus else here
        return {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_RANK": str(local.index(self.rank)),
            "LOCAL_WORLD_SIZE": str(len(local)),
            "MASTER_ADDR": str(self._place.hostname),
            "MASTER_PORT": str(self._place.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",  # rank 0 connects too: the store is open
        }

    def barrier(self) -> None:
        """Wait until every rank has called this as often.

        Raises:
            RuntimeError: a rank has ended before.
        """
        self._barriers += 1
        key = f"barrier/{self._barriers}"
        if self._ours.add(f"{key}/ranks", 1) == self.world_size:
            self._ours.set(key, "")
        why = "another rank has ended, so it does not come to this barrier"
        self._wait(key, "a rank has ended", why)

    def agree(self, stop: str) -> str:
        """What every rank does after a report: rank 0 says, and the others wait for it.

        Args:
            stop: the request to stop that rank 0 has, "" for none; of other ranks it is ignored.

        Raises:
            RuntimeError: rank 0 has ended and has reported less often.
        """
        self._reports += 1
        key = f"report/{self._reports}"
        if self.rank == 0:
            self._ours.set(key, stop)
            return stop
        why = (
            f"rank 0 has ended after {self._reports - 1} reports: every rank must report each step"
        )
        self._wait(key, "rank 0 has ended", why)
        return str(self._ours.get(key).decode())

    def leave(self) -> None:
        """This rank ends; those that wait for it learn so."""
        with suppress(RuntimeError):  # rank 0 was killed, and the store with it
            self._ours.set("a rank has ended", "")
            if self.rank == 0:
                self._ours.set("rank 0 has ended", "")

    def _wait(self, key: str, ended: str, why: str) -> None:
        """Wait until there is a key; raise RuntimeError if it cannot come any more."""
        while not self._ours.check([key]):
            if self._ours.check([ended]) and not self._ours.check([key]):
                raise RuntimeError(why)
            time.sleep(PAUSE)
