"""A slot as a Ray actor: it starts a parent of processes, and hands on what they send.

Trials run in processes that the parent forks, never in this one, which belongs to Ray.
"""

import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import ray

from search_spaces.errors import AutomlError
from workers.protocol import Assignment, StopRequest

from .parent import News
from .processes import POLL_SECONDS, Parent, RankProcess, objective_file, receive_all

# Each group has a thread: `take` runs in "mail"; `stop`, `dump`, `end`, `address` in "control".
CONCURRENCY_GROUPS = {"mail": 1, "control": 1}


class Actor:
    """Runs one rank after another; see `CONCURRENCY_GROUPS` for the thread of each method.

    Args:
        objective: the user's, pickled by `workers.runtime.parent`; None if a workload is run.
        workload, threads, gpus: see `Parent`.
        paths: folders to add to `sys.path`, from the process that pickled the objective.
        name: names its sweep and slot in the Ray dashboard.
    """

    def __init__(
        self,
        objective: bytes | None,
        workload: str | None,
        threads: int,
        paths: Sequence[str] = (),
        name: str = "worker",
        gpus: float = 0.0,
    ) -> None:
        self._name = name
        sys.path += [path for path in paths if path not in sys.path and Path(path).exists()]
        file = objective_file(objective)
        self._parent = Parent(name, file, workload, threads, _interfaces(), gpus)
        self._rank = RankProcess(self._parent)
        self._rank.kill()  # there is none yet
        self._attempt: tuple[int, int] | None = None  # whose rank that is
        self._lock = threading.Lock()  # `stop` and `end` may come before `run`
        self._rendezvous: Any = None  # kept until the next: other ranks may still be leaving it
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def __repr__(self) -> str:
        return self._name

    def ready(self) -> tuple[str, str]:
        """Wait until processes can be forked; why that is not possible or "", and Ray's node."""
        node = ray.get_runtime_context().get_node_id()
        try:
            while not self._parent.loaded:
                receive_all([self._parent], [], POLL_SECONDS)
        except AutomlError as error:
            return str(error), node
        return "", node

    def run(self, assignment: Assignment, rank: int, rendezvous: str) -> None:
        """Run a rank in a process of its own until `end`."""
        process = self._of((assignment.trial, assignment.attempt), begins=True)
        process.run(assignment, rank, rendezvous)
        process.closed.wait()

    def take(self, trial: int, attempt: int, timeout: float) -> list[News]:
        """Wait up to `timeout` seconds for messages of the rank of an attempt."""
        found = receive_all([self._parent], [self._of((trial, attempt))], timeout)
        return [message for _, message in found]

    def stop(self, trial: int, attempt: int, how: StopRequest) -> None:
        """Ask an attempt to stop; it may not have begun yet."""
        self._of((trial, attempt)).stop(how)

    def dump(self, assignment: Assignment, rank: int) -> None:
        """Let the process of a rank write the stacks of its threads to its log."""
        self._rank.dump(assignment, rank)

    def end(self, trial: int, attempt: int) -> None:
        """The attempt is over: end its process by force."""
        self._of((trial, attempt)).kill()

    def _of(self, key: tuple[int, int], *, begins: bool = False) -> RankProcess:
        """The process of an attempt, which may not have begun; one of no use if another's runs."""
        with self._lock:
            if self._attempt != key and (begins or self._rank.closed.is_set()):
                self._attempt, self._rank = key, RankProcess(self._parent)
            return self._rank if self._attempt == key else RankProcess(self._parent)

    def _on_sigterm(self, *_: Any) -> None:
        """The machine is about to be taken away: the attempt is asked to end."""
        if self._rank.pid is None or self._rank.closed.is_set():
            os._exit(0)
        os.kill(self._rank.pid, signal.SIGTERM)

    def address(self, *, on_one_node: bool) -> str:
        """Start a store on a free port, at which a gang meets, and return "tcp://HOST:PORT".

        Args:
            on_one_node: no other machine has to reach it.
        """
        from workers.ranks import HERE, store_on  # imports torch

        host = HERE if on_one_node else ray.util.get_node_ip_address()
        self._rendezvous = store_on(host)
        return f"tcp://{host}:{self._rendezvous.port}"


def _interfaces() -> dict[str, str]:
    """The variables that make gloo and NCCL use the address by which Ray knows this node.

    Else they take that of the host name, which Debian's hosts file maps to 127.0.1.1. The user's
    own have priority.
    """
    address = ray.util.get_node_ip_address()
    wanted = {
        variable: name
        for name, known in psutil.net_if_addrs().items()
        for variable in ("GLOO_SOCKET_IFNAME", *(("NCCL_SOCKET_IFNAME",) if name != "lo" else ()))
        if any(one.address == address for one in known)
    }
    return {key: value for key, value in wanted.items() if key not in os.environ}
