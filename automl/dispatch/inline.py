"""Trials run in this process, one at a time: for debugging, and for tests that must repeat exactly."""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

from workers.protocol import Assignment, Event, Halt, Outcome, Started, lost

from .base import Dispatcher


class InlineDispatcher(Dispatcher):
    """Runs a trial of one rank in the calling thread, and one of several ranks as local processes.

    Args:
        num_slots: how many ranks a trial may have.
        objective: of the user's own, or None for the assignment's workload.
    """

    name = "inline"
    commits_each: ClassVar[bool] = True
    estimates: ClassVar[bool] = True

    def __init__(self, num_slots: int = 1, objective: Callable[[Any], Any] | None = None) -> None:
        self.num_slots = self.free_slots = num_slots
        self._objective = objective
        self._begun = time.monotonic()
        self._queue: deque[Assignment] = deque()
        self._current: Assignment | None = None
        self._asked: Halt | None = None

    def submit(self, assignment: Assignment) -> None:
        """Queue an attempt for the next `poll`."""
        self._queue.append(assignment)
        self.free_slots = 0

    def halt(self, trial: int, attempt: int, how: Halt) -> None:
        """The running attempt sees it when its report returns."""
        current = self._current
        if current is not None and (current.trial, current.attempt) == (trial, attempt):
            self._asked = how

    def kill(self, trial: int, attempt: int, failure: str, message: str) -> None:
        """The most that can be done to this very thread is to ask."""
        self.halt(trial, attempt, Halt.INTERRUPT)

    def poll(self, handle: Callable[[Event], None], timeout: float) -> int:
        """Run the next attempt to its end."""
        if not self._queue:
            return 0
        assignment, count = self._queue.popleft(), 0

        def send(event: Event) -> None:
            nonlocal count
            count += 1
            handle(event)

        self._current, self._asked = assignment, None
        send(Started(assignment.trial, assignment.attempt, f"{socket.gethostname()}:{os.getpid()}"))
        begun = time.monotonic()
        try:
            outcome = self._run(assignment, send)
        except KeyboardInterrupt:
            outcome = lost(
                assignment, "ended by force", failure="preempted", seconds=time.monotonic() - begun
            )
        self._current = None
        self.free_slots = self.num_slots
        send(outcome)
        return count

    def now(self) -> float:
        """Seconds since the dispatcher was made."""
        return time.monotonic() - self._begun

    def close(self) -> None:
        """Nothing is left to free."""
        self._queue.clear()

    def _run(self, assignment: Assignment, send: Callable[[Event], None]) -> Outcome:
        if assignment.num_ranks > 1:
            from workers.runtime.processes import run_gang

            return run_gang(assignment, send, lambda: self._asked)
        from workers.context import Context
        from workers.run import run

        device = "cuda:0" if assignment.gpus > 0 else "cpu"
        context = Context(assignment, send=send, halted=lambda: self._asked, device=device)
        context.folder.mkdir(parents=True, exist_ok=True)
        return run(context, self._objective)
