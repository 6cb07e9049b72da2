"""A warm worker as a Ray actor."""

import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import psutil

from workers.protocol import LOGS, Assignment, Event, Heartbeat, StopRequest, log_name, open_log

from .logs import bounded_log, redirect
from .worker import Worker

# Each group has a thread: `take` runs in "mail"; `stop`, `dump` and `address` in "control".
CONCURRENCY_GROUPS = {"mail": 1, "control": 1}


class Actor:
    """A `Worker` whose methods Ray calls; see `CONCURRENCY_GROUPS` for the thread of each.

    Args:
        objective, workload, threads, gpus: see `Worker`.
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
        os.environ.update(_interfaces())
        self._worker = Worker(objective, workload, threads, _logged, gpus)
        self._rendezvous: Any = None  # kept until the next: other ranks may still be leaving it

    def __repr__(self) -> str:
        return self._name

    def ready(self) -> tuple[str, str]:
        """`broken` and `gpu_problem` of its `Worker`."""
        return self._worker.broken, self._worker.gpu_problem

    def run(self, assignment: Assignment, rank: int, rendezvous: str) -> None:
        """See `Worker.run`."""
        self._worker.run(assignment, rank, rendezvous)

    def take(self, timeout: float) -> tuple[list[Event], Heartbeat]:
        """See `Worker.take`."""
        return self._worker.take(timeout)

    def dump(self, assignment: Assignment, rank: int) -> None:
        """See `Worker.dump`."""
        self._worker.dump(assignment, rank)

    def stop(self, trial: int, attempt: int, how: StopRequest) -> None:
        """See `Worker.stop`."""
        self._worker.stop(trial, attempt, how)

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


@contextmanager
def _logged(assignment: Assignment, rank: int) -> Iterator[None]:
    """Send the output of a rank to its log in the trial's folder, instead of Ray's own log.

    That of C libraries too, such as NCCL's warnings and the assertions of kernels.
    """
    with open_log(assignment, rank) as log, bounded_log(assignment, rank):
        _show_in_dashboard(assignment, rank)
        before = {number: os.dup(number) for number in (1, 2)}
        redirect(dict.fromkeys(before, log.fileno()))
        try:
            with redirect_stdout(log), redirect_stderr(log):
                print(f"{assignment.label} (its seed is {assignment.seed})", flush=True)
                yield
        finally:
            redirect(before)
            for copy in before.values():
                os.close(copy)


def _show_in_dashboard(assignment: Assignment, rank: int) -> None:
    """Link the log into the folder that Ray's dashboard lists for this node."""
    from ray._private import worker

    node = worker._global_node
    if node is None:  # not a process of Ray
        return
    name = (
        f"{assignment.sweep}-trial-{assignment.trial}-attempt-{assignment.attempt}-rank-{rank}.log"
    )
    link = Path(node.get_logs_dir_path(), name)
    with suppress(OSError):  # without links the log is still in the trial's folder
        link.unlink(missing_ok=True)  # left by a sweep of the same name in another store
        link.symlink_to(Path(assignment.folder, LOGS, log_name(assignment.attempt, rank)))
