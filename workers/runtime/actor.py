"""A warm worker: a Ray actor that runs one rank of an attempt at a time, one attempt after another.

Its events wait in a mailbox until the controller takes them (`take`, which a thread of its own
answers): a report costs the trial microseconds and reaches the controller a millisecond later.
"""

import faulthandler
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from workers.protocol import (
    LOGS,
    WORKER_SPENT,
    Assignment,
    Event,
    Heartbeat,
    Outcome,
    Started,
    StopRequest,
    log_name,
    open_log,
)

from .logs import bounded_log

# Each group has a thread: `take` runs in "mail"; `stop`, `dump` and `address` in "control".
CONCURRENCY_GROUPS = {"mail": 1, "control": 1}


class Worker:
    """Runs ranks; see `CONCURRENCY_GROUPS` for the thread of each method.

    Args:
        objective: the user's, pickled by cloudpickle; None if a workload is run.
        workload: name of the workload, which is imported before the first attempt.
        threads: CPU threads of this process.
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
    ) -> None:
        self._name = name
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ[name] = str(threads)
        sys.path += [path for path in paths if path not in sys.path and Path(path).exists()]
        self._objective: Callable[[Any], Any] | None = None
        self._broken = ""
        try:
            self._warm(objective, workload, threads)
        except Exception as error:  # for `ready`: Ray hides the error of a constructor
            self._broken = f"{type(error).__name__}: {error}"
        self._mail: deque[Event] = deque()
        self._arrived = threading.Condition()
        self._stop_requests: dict[tuple[int, int], StopRequest] = {}
        self._moved = time.monotonic()
        self._steps = 0
        self._rendezvous: Any = None  # kept until the next: other ranks may still be leaving it
        self._running = False
        self._preempted = False
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def __repr__(self) -> str:
        return self._name

    def ready(self) -> tuple[str, str]:
        """The id of its node, and why this worker cannot be used ("" if it can)."""
        import ray

        return ray.get_runtime_context().get_node_id(), self._broken

    def run(self, assignment: Assignment, rank: int = 0, rendezvous: str = "") -> Outcome:
        """Run one rank of an attempt to its end; rank 0 also posts its reports and its outcome."""
        from workers.context import Context
        from workers.run import run

        self._moved = time.monotonic()
        self._steps = 0
        key = (assignment.trial, assignment.attempt)
        context = Context(
            assignment,
            send=self._send if rank == 0 else lambda report: None,
            stop_requested=lambda: self._stop_requested(key),
            rank=rank,
            world_size=assignment.num_ranks,
            rendezvous=rendezvous,
            device="cuda:0" if assignment.gpus > 0 else "cpu",
        )
        if rank == 0:
            self._send(Started(*key, f"{socket.gethostname()}:{os.getpid()}"))
        self._running = True
        with _logged(assignment, rank):
            outcome = run(context, self._objective)
        self._running = False
        self._stop_requests.pop(key, None)
        if self._preempted:
            message = outcome.message or "the machine of its worker is being taken away"
            details = {**outcome.details, WORKER_SPENT: True}
            outcome = replace(outcome, message=message, details=details)
        if rank == 0:
            self._send(outcome)
        return outcome

    def take(self, timeout: float) -> tuple[list[Event], Heartbeat]:
        """Wait up to `timeout` seconds for events; returns them with a heartbeat."""
        with self._arrived:
            self._arrived.wait_for(lambda: self._mail, timeout)
            mail = list(self._mail)
            self._mail.clear()
        return mail, Heartbeat(time.monotonic() - self._moved, self._steps)

    def dump(self, assignment: Assignment, rank: int) -> None:
        """Write the stack of each thread to the rank's log; works while the attempt hangs."""
        with open_log(assignment, rank) as log:
            log.write("the attempt hangs; the stacks of its threads are\n")
            log.flush()
            faulthandler.dump_traceback(log)

    def stop(self, trial: int, attempt: int, how: StopRequest) -> None:
        """Ask an attempt to stop; it may not have begun yet."""
        self._stop_requests[trial, attempt] = how

    def address(self) -> str:
        """Start a rendezvous store on a free port, for a gang on several nodes; its address."""
        import ray
        from torch._C._distributed_c10d import TCPStore

        host = ray.util.get_node_ip_address()
        self._rendezvous = TCPStore(host, 0, is_master=True, wait_for_workers=False)
        return f"tcp://{host}:{self._rendezvous.port}"

    def _warm(self, objective: bytes | None, workload: str | None, threads: int) -> None:
        if objective is not None:
            from ray import cloudpickle

            self._objective = cloudpickle.loads(objective)
        if workload is not None:
            from workers.workloads import WORKLOADS

            WORKLOADS.get(workload)
        import torch  # once per worker, before the first attempt

        torch.set_num_threads(threads)
        gc.collect()
        gc.freeze()  # imported modules stay: to scan them before each trial would take 0.1 s

    def _send(self, event: Event) -> None:
        self._moved = time.monotonic()
        with self._arrived:
            self._mail.append(event)
            self._arrived.notify()

    def _stop_requested(self, key: tuple[int, int]) -> StopRequest | None:
        self._moved = time.monotonic()
        self._steps += 1
        return self._stop_requests.get(key) or (StopRequest.INTERRUPT if self._preempted else None)

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        """The machine is about to be taken away: ask the attempt to stop with a checkpoint."""
        if not self._running:
            os._exit(0)
        self._preempted = True


@contextmanager
def _logged(assignment: Assignment, rank: int) -> Iterator[None]:
    """Send the output of a rank to its log in the trial's folder, instead of Ray's own log."""
    with open_log(assignment, rank) as log, bounded_log(assignment, rank):
        _show_in_dashboard(assignment, rank)
        with redirect_stdout(log), redirect_stderr(log):
            print(assignment.label, flush=True)
            yield


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
