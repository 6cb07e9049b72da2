"""No workers of its own: every trial is run by an agent elsewhere (`automl ask`)."""

import time
from collections.abc import Callable

from automl.core.resources import WorkerRange
from automl.errors import AutomlError
from workers.protocol import Assignment, Event, StopRequest

from .base import Dispatcher


class AgentsDispatcher(Dispatcher):
    """Has no slots. The controller serves agents between two calls of `poll`."""

    name = "agents"
    patience = 0.1
    num_slots = 0
    free_slots = 0

    def scale(self, workers: WorkerRange) -> None:
        """Do nothing: the sweep has this many workers once a controller runs it."""

    def submit(self, assignment: Assignment) -> None:
        """Never called: there is no slot.

        Raises:
            AutomlError: it was called.
        """
        raise AutomlError(f"the dispatcher {self.name!r} has no slots for {assignment.label}")

    def stop(self, trial: int, attempt: int, how: StopRequest) -> None:
        """Do nothing: no attempt runs here."""

    def kill(self, trial: int, attempt: int, failure: str, message: str) -> None:
        """Do nothing: no attempt runs here."""

    def poll(self, handle: Callable[[Event | None], None], timeout: float) -> None:
        time.sleep(timeout)

    def close(self) -> None:
        """Do nothing."""
