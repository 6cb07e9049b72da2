"""A slot as a Ray actor: it starts a parent of processes, and passes messages on.

Trials run in processes that the parent forks, never in this one, which belongs to Ray.
"""

import os
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from search_spaces.errors import AutomlError
from workers.protocol import Assignment, Death, Outcome, StopRequest

from .child import TAKE_SECONDS, News
from .processes import POLL_SECONDS, ObjectiveFile, Parent, RankProcess, receive_all

# Each group has a thread: `take` runs in "mail"; `stop`, `dump`, `end`, `address` in "control".
CONCURRENCY_GROUPS = {"mail": 1, "control": 1}


class Actor:
    """Runs one rank after another; see `CONCURRENCY_GROUPS` for the thread of each method.

    Args:
        objective: the user's, pickled by `workers.runtime.pickling`; None if a workload is run.
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
        file = ObjectiveFile(objective)
        self._parent = Parent(name, file, workload, threads, _interfaces(), gpus)
        self._attempt: tuple[int, int] | None = None
        self._rank: RankProcess | None = None
        self._stops: dict[tuple[int, int], StopRequest] = {}  # of attempts that come
        self._lock = threading.Lock()  # `stop` and `end` come at any time
        self._mail: deque[tuple[tuple[int, int], News | Death]] = deque()  # and whose it is
        self._arrived = threading.Condition()
        self._rendezvous: Any = None  # kept until the next: other ranks may still be leaving it
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def __repr__(self) -> str:
        return self._name

    def ready(self) -> tuple[str, str]:
        """Wait until processes can be forked; why that is not possible or "", and Ray's node."""
        import ray

        node = ray.get_runtime_context().get_node_id()
        try:
            while not self._parent.loaded:
                receive_all([self._parent], [], POLL_SECONDS)
        except AutomlError as error:
            return str(error), node
        return "", node

    def run(self, assignment: Assignment, rank: int, rendezvous: str) -> None:
        """Run a rank in a process of its own until that has told its outcome or is dead."""
        key = (assignment.trial, assignment.attempt)
        process = self._parent.start(assignment)
        with self._arrived:
            self._mail.clear()  # of an attempt that was ended by force
        with self._lock:
            if self._rank is not None:
                self._rank.kill()
            self._attempt, self._rank = key, process
            process.run(assignment, rank, rendezvous)
            if how := self._stops.pop(key, None):
                process.stop(how)
        running = True
        while running and not process.closed:
            for _, message in receive_all([self._parent], [process], TAKE_SECONDS):
                events = message.events if isinstance(message, News) else []
                over = isinstance(message, Death) or any(isinstance(e, Outcome) for e in events)
                running = running and not over
                with self._arrived:
                    self._mail.append((key, message))
                    self._arrived.notify()
        with self._lock:
            process.kill()

    def take(self, trial: int, attempt: int, timeout: float) -> list[News | Death]:
        """Wait up to `timeout` seconds for messages of the rank of an attempt."""

        def waits() -> bool:
            return bool(self._mail) and self._mail[0][0] == (trial, attempt)

        found = []
        with self._arrived:
            self._arrived.wait_for(waits, timeout)
            while waits():
                found.append(self._mail.popleft()[1])
        return found

    def stop(self, trial: int, attempt: int, how: StopRequest) -> None:
        """Ask an attempt to stop; it may not have begun yet."""
        with self._lock:
            if self._rank is not None and self._attempt == (trial, attempt):
                self._rank.stop(how)
            else:
                self._stops[trial, attempt] = how

    def dump(self, assignment: Assignment, rank: int) -> None:
        """Let the process of a rank write the stacks of its threads to its log."""
        if self._rank is not None:
            self._rank.dump(assignment, rank)

    def end(self, trial: int, attempt: int) -> None:
        """End the process of an attempt by force."""
        with self._lock:
            if self._rank is not None and self._attempt == (trial, attempt):
                self._rank.kill()

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        """The machine is about to be taken away: the attempt is asked to end."""
        if self._rank is None or self._rank.pid is None or self._rank.closed:
            os._exit(0)
        with suppress(ProcessLookupError):
            os.kill(self._rank.pid, signal.SIGTERM)

    def address(self, *, on_one_node: bool) -> str:
        """Start a store on a free port, at which a gang meets, and return "tcp://HOST:PORT".

        Args:
            on_one_node: no other machine has to reach it.
        """
        import ray
        from torch._C._distributed_c10d import TCPStore

        from workers.ranks.meeting import HERE, store_here

        host = HERE if on_one_node else ray.util.get_node_ip_address()
        self._rendezvous = store = (
            store_here()
            if on_one_node
            else TCPStore(host, 0, is_master=True, wait_for_workers=False)
        )
        return f"tcp://{host}:{store.port}"


def _interfaces() -> dict[str, str]:
    """The variables that make gloo and NCCL use the address by which Ray knows this node.

    Else they take that of the host name, which Debian's hosts file maps to 127.0.1.1. The user's
    own have priority.
    """
    import ray

    address = ray.util.get_node_ip_address()
    for name, addresses in psutil.net_if_addrs().items():
        kinds = (socket.AF_INET, socket.AF_INET6)
        if any(one.address == address for one in addresses if one.family in kinds):
            wanted = {"GLOO_SOCKET_IFNAME": name}
            if name != "lo":
                wanted["NCCL_SOCKET_IFNAME"] = name
            return {key: value for key, value in wanted.items() if key not in os.environ}
    return {}
