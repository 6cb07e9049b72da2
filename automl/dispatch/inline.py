"""Runs trials in this process, one at a time: for debugging, and for tests that must repeat."""

import os
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

from workers.protocol import Assignment, Event, Outcome, Started, StopRequest, lost

from .base import Dispatcher


class InlineDispatcher(Dispatcher):
    """Runs a trial of one rank in the calling thread, and one of several ranks as local processes.

    Args:
        num_slots: how many ranks a trial may have.
        objective: the user's; None to run the workload of the assignment.
    """

    name = "inline"
    commits_each: ClassVar[bool] = True
    serial: ClassVar[bool] = True
    estimates: ClassVar[bool] = True

    def __init__(self, num_slots: int = 1, objective: Callable[[Any], Any] | None = None) -> None:
        self.num_slots = self.free_slots = num_slots
        self._objective = objective
        self._begun = time.monotonic()
        self._queue: deque[Assignment] = deque()
        self._current: Assignment | None = None
        self._request: StopRequest | None = None

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

    def poll(self, handle: Callable[[Event], None], timeout: float) -> None:
        """Run the next attempt to its end."""
        if not self._queue:
            return
        self._current = assignment = self._queue.popleft()
        self._request = None
        worker = f"{socket.gethostname()}:{os.getpid()}"
        handle(Started(assignment.trial, assignment.attempt, worker))
        begun = time.monotonic()
        try:
            outcome = self._run(assignment, handle)
        except KeyboardInterrupt:  # the second Ctrl-C: see `automl.control.signals`
            seconds = time.monotonic() - begun
            outcome = lost(assignment, "ended by force", failure="preempted", seconds=seconds)
        self._current = None
        self.free_slots = self.num_slots
        handle(outcome)

    def now(self) -> float:
        """Seconds since the dispatcher was made."""
        return time.monotonic() - self._begun

    def close(self) -> None:
        """Drop the attempts that have not begun."""
        self._queue.clear()

    def _run(self, assignment: Assignment, send: Callable[[Event], None]) -> Outcome:
        if assignment.num_ranks > 1:
            from workers.runtime.processes import run_gang

            return run_gang(assignment, send, lambda: self._request)
        from workers.context import Context
        from workers.run import run

        device = "cuda:0" if assignment.gpus > 0 else "cpu"
        context = Context(assignment, send, lambda: self._request, device=device)
        return run(context, self._objective)
