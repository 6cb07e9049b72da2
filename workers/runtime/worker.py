"""A warm worker: runs one rank of an attempt at a time, one attempt after another.

Its events wait in a mailbox until they are taken in another thread (`take`): a report costs the
trial microseconds and reaches the controller a millisecond later.
"""

import faulthandler
import gc
import importlib
import os
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from search_spaces.errors import StoreError
from workers.protocol import (
    Assignment,
    Ending,
    Event,
    Heartbeat,
    Outcome,
    Started,
    StopRequest,
    lost,
    open_log,
)

if TYPE_CHECKING:
    from workers.context import Context

    from .script import Script

LOOK_SECONDS: Final = 5.0  # without a step, after which the worker looks whether it compiles
MAX_COMPILE_SECONDS: Final = 3600.0  # then compilation hangs

Logged = Callable[[Assignment, int], AbstractContextManager[None]]


class Worker:
    """Runs ranks. `run` is called in the main thread, everything else in other threads.

    Args:
        objective: the user's, pickled by `workers.runtime.pickling`; None if a workload is run.
        workload: name of the workload, which is imported before the first attempt.
        threads: CPU threads of this process, also of the compiler that torch.compile calls.
        logged: while its context is open, the output of a rank goes to the rank's log.
        gpus: of this process. If there are any, they are tried before the first attempt, unless an
            objective has not loaded torch.

    Attributes:
        broken: why this worker cannot run anything; "" if it can.
        gpu_problem: why its GPU cannot be used; "" if it can.
        is_running: whether a rank runs.
    """

    def __init__(
        self,
        objective: bytes | None,
        workload: str | None,
        threads: int,
        logged: Logged,
        gpus: float = 0.0,
    ) -> None:
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ[name] = str(threads)
        # Else each worker would start up to 32 processes that compile.
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(threads))
        if not os.environ.keys() & {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}:
            # Segments that grow leave no pieces that batches of other shapes cannot use.
            os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        # cuBLAS reads it once, with the first product: the knob `deterministic` comes later.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        self._logged = logged
        self._objective: Callable[[Any], Any] | None = None
        self._script: Script | None = None
        self._mail: deque[Event] = deque()
        self._arrived = threading.Condition()
        self._stop_requests: dict[tuple[int, int], StopRequest] = {}
        self._moved = time.monotonic()
        self._steps = 0
        self.is_running = False
        self._begins = False
        self._preempted = False
        self._process = os.getpid()
        self._last: Context | None = None  # other ranks may still be leaving its meeting
        self.broken = ""
        self.gpu_problem = ""
        try:
            self._warm(objective, workload)
            if gpus > 0:
                self.gpu_problem = _try_gpu(workload)
        except Exception as error:
            self.broken = f"{type(error).__name__}: {error}"
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def run(self, assignment: Assignment, rank: int, rendezvous: str) -> None:
        """Run one rank of an attempt to its end and post its outcome; rank 0 posts reports too."""
        from workers.context import Context

        self._moved = time.monotonic()
        key = (assignment.trial, assignment.attempt)
        context = Context(
            assignment,
            send=self._post if rank == 0 else lambda report: None,
            stop_requested=lambda: self._stop_requested(key),
            rank=rank,
            world_size=assignment.num_ranks,
            rendezvous=rendezvous,
            device="cuda:0" if assignment.gpus > 0 else "cpu",
        )
        self._last = context
        if rank == 0:
            self._post(Started(*key, f"{socket.gethostname()}:{os.getpid()}"))
        with self._arrived:  # the first heartbeat goes at once, since a rank may hang soon
            self.is_running = self._begins = True
            self._arrived.notify_all()
        outcome = self._outcome(context)
        self.is_running = False
        self._steps = 0  # an idle worker has no steps for the next attempt to be compared with
        self._stop_requests.pop(key, None)
        if self._preempted:
            message = outcome.message or "the machine of its worker is being taken away"
            outcome = replace(outcome, message=message, worker_spent=True)
        self._post(outcome)

    def take(self, timeout: float) -> tuple[list[Event], Heartbeat]:
        """Wait up to `timeout` seconds for events or a rank's begin; returns with a heartbeat."""
        with self._arrived:
            self._arrived.wait_for(lambda: self._mail or self._begins, timeout)
            self._begins = False
            mail = list(self._mail)
            self._mail.clear()
        return mail, Heartbeat(self._idle_seconds(), self._steps)

    def _idle_seconds(self) -> float:
        """The time since the last step; to compile is none, for an hour."""
        idle = time.monotonic() - self._moved
        if idle < LOOK_SECONDS or idle > MAX_COMPILE_SECONDS:
            return idle
        from workers.device.libraries import is_compiling

        return 0.0 if is_compiling() else idle

    def dump(self, assignment: Assignment, rank: int) -> None:
        """Write the stack of each thread to the rank's log; works while the attempt hangs."""
        with open_log(assignment, rank) as log:
            log.write("the attempt hangs; the stacks of its threads are\n")
            log.flush()
            faulthandler.dump_traceback(log)

    def stop(self, trial: int, attempt: int, how: StopRequest) -> None:
        """Ask an attempt to stop; it may not have begun yet."""
        self._stop_requests[trial, attempt] = how

    def _outcome(self, context: "Context") -> Outcome:
        """Run the rank; its output goes to its log."""
        from workers.failures import failure_of
        from workers.run import run

        a = context.assignment
        with ExitStack() as stack:
            try:
                stack.enter_context(self._logged(a, context.rank))
            except StoreError as error:  # an earlier attempt has put a link into its folder
                failure, message = failure_of(error)
                kind = type(error).__name__
                return Outcome(
                    a.trial, a.attempt, Ending.FAILED, {}, failure, message, exception=kind
                )
            except OSError as error:  # the trial is not to blame if there is no room
                return lost(a, f"its log cannot be opened: {error}")
            if self._script is not None:
                self._script.go_home()
            return run(context, self._objective)

    def _warm(self, objective: bytes | None, workload: str | None) -> None:
        if objective is not None:
            from .pickling import read_objective

            sent = read_objective(objective)
            self._objective, self._script = sent.objective, sent.script
        if workload is not None:
            from workers.workloads import WORKLOADS

            WORKLOADS.get(workload)
        gc.collect()
        gc.freeze()  # imported modules stay: to scan them before each trial would take 0.1 s

    def _post(self, event: Event) -> None:
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
        if os.getpid() != self._process:  # one that the objective has forked ends as any other
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        if not self.is_running:
            os._exit(0)
        self._preempted = True


def _try_gpu(workload: str | None) -> str:
    """Why the GPU of this process cannot be used; "" if it can, or if torch is not loaded."""
    from workers.device.gpu import gpu_problem

    if workload is not None:
        importlib.import_module("torch")
    return gpu_problem("cuda:0")
