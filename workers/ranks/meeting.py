"""Where the ranks of a user's function or command meet: a store of torch, as torchrun has one.

The first rank's worker holds the store and its port for the whole attempt, so no other process can
take the port. Functions and commands find it through the variables that torchrun sets.
"""

import json
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from torch._C._distributed_c10d import FileStore, PrefixStore, TCPStore

from .process_group import address, server_at

HERE: Final = "127.0.0.1"
MIN_PAUSE: Final = 0.001  # seconds between two looks at the store
MAX_PAUSE: Final = 0.02


class Meeting:
    """One rank's connection to the store of its attempt.

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
        self._host, self._port, file = address(rendezvous) if rendezvous else ("", 0, "")
        if self._host:
            self._store = server_at(self._host, self._port)
        else:
            self._host = HERE
            self._store, self._port = _on_this_machine(rank, file)
        self._ours = PrefixStore("automl", self._store)  # beside the keys of torch
        self._barriers = 0
        self._reports = 0  # of this rank
        self._stop: tuple[int, str] | None = None  # the report at which rank 0 was asked to stop

    def variables(self) -> Mapping[str, str]:
        """The environment variables of torchrun; every rank must call it.

        `torch.distributed.init_process_group` needs no more. If a rank has GPUs of its own, it is
        rank 0 of one on its machine: `cuda:0` is the first of the GPUs that it sees.
        """
        here = self._ranks_of_this_machine()
        local = [self.rank] if self._own_gpus else here
        return {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_RANK": str(local.index(self.rank)),
            "LOCAL_WORLD_SIZE": str(len(local)),
            "MASTER_ADDR": self._host,
            "MASTER_PORT": str(self._port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",  # rank 0 connects too: the store is open
        }

    def barrier(self) -> None:
        """Wait until every rank has called this as often.

        Raises:
            RuntimeError: a rank has ended before.
        """
        self._barriers += 1
        key = f"barrier/{self._barriers}"
        self._ours.add(key, 1)
        self._wait(
            lambda: self._ours.add(key, 0) >= self.world_size,
            lambda: self._ours.add("ended", 0) > 0,
            "another rank has ended, so it does not come to this barrier",
        )

    def agree(self, stop: str) -> str:
        """What every rank does after a report: rank 0 says, and the others wait for it.

        Args:
            stop: the request to stop that rank 0 has, "" for none; of other ranks it is ignored.

        Raises:
            RuntimeError: rank 0 has ended and has reported less often.
        """
        self._reports += 1
        if self.rank == 0:
            if stop and self._stop is None:
                self._stop = (self._reports, stop)
            self._ours.set("reports", json.dumps([self._reports, self._stop]))
            return stop
        return self._answer_of_first()

    def leave(self) -> None:
        """This rank ends; those that wait for it learn so."""
        with suppress(RuntimeError):  # rank 0 was killed, and the store with it
            self._ours.add("ended", 1)
            if self.rank == 0:
                self._ours.set("first has ended", "")

    def _answer_of_first(self) -> str:
        self._wait(
            lambda: self._reports_of_first()[0] >= self._reports,
            lambda: self._ours.check(["first has ended"]),
            f"rank 0 has ended after {self._reports - 1} reports: every rank must report each step",
        )
        stop = self._reports_of_first()[1]
        return stop[1] if stop and stop[0] <= self._reports else ""

    def _reports_of_first(self) -> tuple[int, tuple[int, str] | None]:
        if not self._ours.check(["reports"]):
            return 0, None
        count, stop = json.loads(self._ours.get("reports"))
        return count, stop

    def _wait(self, done: Callable[[], bool], hopeless: Callable[[], bool], why: str) -> None:
        """Wait until `done`; raise RuntimeError if that cannot come any more."""
        pause = MIN_PAUSE
        while not done():
            if hopeless() and not done():
                raise RuntimeError(why)
            time.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE)

    def _ranks_of_this_machine(self) -> list[int]:
        self._ours.set(f"machine/{self.rank}", socket.gethostname())
        ranks = range(self.world_size)
        machines = [self._ours.get(f"machine/{rank}").decode() for rank in ranks]
        return [rank for rank in ranks if machines[rank] == machines[self.rank]]


def _on_this_machine(rank: int, file: str) -> tuple[TCPStore, int]:
    """A store on a free port, opened by rank 0; the others read its port from the file."""
    if rank > 0:
        port = int(FileStore(file).get("port"))
        return server_at(HERE, port), port
    store = store_here()
    if file:
        FileStore(file).set("port", str(store.port))
    return store, store.port


def store_here() -> TCPStore:
    """A store on a free port, which other machines do not reach."""
    listener = socket.create_server((HERE, 0))
    port = listener.getsockname()[1]
    return TCPStore(
        HERE, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
    )
