"""Runs trials in this process, one at a time, or none at all: then agents elsewhere run them."""

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

from automl.core import WorkerRange
from search_spaces.errors import StoreError
from workers.protocol import Assignment, Event, Outcome, Started, StopRequest, lost

from .base import Dispatcher

__all__ = ["InlineDispatcher"]
PULSE_SECONDS: Final = 0.1  # how often the controller may commit while an objective computes


class InlineDispatcher(Dispatcher):
    """Runs a trial of one rank in the calling thread, and one of several ranks as local processes.

    An objective may report from its own threads. A thread of the dispatcher lets the controller
    commit while the objective computes. A lock keeps the calls of `handle` apart.

    Args:
        num_slots: how many ranks a trial may have.
        objective: the user's; None to run the workload of the assignment.
        gpus: those of the trials, as `CUDA_VISIBLE_DEVICES` names them.
    """

    name = "inline"
    serial: ClassVar[bool] = True
    estimates: ClassVar[bool] = True

    def __init__(
        self,
        num_slots: int = 1,
        objective: Callable[[Any], Any] | None = None,
        gpus: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self._gpus = gpus
        self.num_slots = self.free_slots = num_slots
        self._objective = objective
        self._queue: deque[Assignment] = deque()
        self._current: Assignment | None = None
        self._request: StopRequest | None = None
        self._handle: Callable[[Event | None], None] = lambda event: None
        self._lock = threading.Lock()
        self._error: Exception | None = None  # of the controller, while an objective reported
        self._closed = threading.Event()
        self._pulse = threading.Thread(target=self._beat, name="automl-inline", daemon=True)

    def submit(self, assignment: Assignment) -> None:
        """Queue an attempt for the next `poll`."""
        self._queue.append(assignment)
        self.free_slots = 0

    def stop(self, trial: int, attempt: int, how: StopRequest) -> None:
        """The running attempt sees the request when its report returns."""
        current = self._current
        if current is not None and (current.trial, current.attempt) == (trial, attempt):
            self._request = how

    def kill(self, trial: int, attempt: int, failure: str, message: str) -> None:
        """Ask the attempt to stop: a thread cannot be killed by itself."""
        self.stop(trial, attempt, StopRequest.INTERRUPT)

    def poll(self, handle: Callable[[Event | None], None], timeout: float) -> None:
        """Run the next attempt to its end; wait if there is none."""
        if not self._queue:
            self._closed.wait(min(timeout, PULSE_SECONDS))
            return
        if not self._pulse.ident:
            self._pulse.start()
        assignment = self._queue.popleft()
        worker = f"{socket.gethostname()}:{os.getpid()}"
        with self._lock:
            self._handle = handle
            self._current = assignment
            self._request = None
            handle(Started(assignment.trial, assignment.attempt, worker))
        begun = time.monotonic()
        try:
            outcome = self._run(assignment, lambda event: self._deliver(assignment, event))
        except KeyboardInterrupt:  # the second Ctrl-C: see `automl.control.machine`
            seconds = time.monotonic() - begun
            outcome = lost(assignment, "ended by force", failure="preempted", seconds=seconds)
        with self._lock:
            self._current = None
            self.free_slots = self.num_slots
            if self._error is not None:
                raise self._error
            handle(outcome)

    def close(self) -> None:
        """Drop the attempts that have not begun."""
        self._queue.clear()
        self._closed.set()

    def _run(self, assignment: Assignment, send: Callable[[Event], None]) -> Outcome:
        if assignment.num_ranks > 1:
            from workers.runtime.processes import run_gang

            return run_gang(assignment, send, lambda: self._request, gpus=self._gpus or None)
        from workers.context import Context
        from workers.run import run
        from workers.runtime.devices import cuda_device

        device = cuda_device(self._gpus) if assignment.gpus > 0 else "cpu"
        with suppress(StoreError):  # of a link in its place; `run` makes it a failure
            assignment.files.make()  # if there is no room for it, the trial is not to blame
        context = Context(assignment, send, lambda: self._request, device=device)
        return run(context, self._objective)

    def _deliver(self, assignment: Assignment | None, event: Event | None) -> None:
        """Give an event of the running attempt to the controller; others are dropped.

        If the controller fails, the attempt is asked to end, and then `poll` raises the error: it
        is not the objective's.
        """
        with self._lock:
            if assignment is None or assignment is not self._current or self._error is not None:
                return
            try:
                self._handle(event)
            except Exception as error:
                self._error = error
                self._request = StopRequest.INTERRUPT

    def _beat(self) -> None:
        while not self._closed.wait(PULSE_SECONDS):
            self._deliver(self._current, None)


class AgentsDispatcher(InlineDispatcher):
    """No slots: every trial is run by an agent elsewhere (`automl ask`), served between polls."""

    name = "agents"
    patience = 0.1
    serial: ClassVar[bool] = False
    estimates: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__(num_slots=0)

    def scale(self, workers: WorkerRange) -> None:
        """Do nothing: the sweep has this many workers once a controller runs it."""
