"""The face of every dispatcher: the controller cannot tell them apart."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from workers.protocol import Assignment, Event, Halt


class Dispatcher(ABC):
    """Runs assignments on slots; one assignment of n ranks takes n slots. Used from one thread.

    Exactly one `Outcome` follows each accepted assignment, whatever happens to its worker.

    Args:
        commits_each: events are recorded and answered one by one inside `handle`, because the attempt waits there.
        estimates: attempts run for real, so that their memory is worth estimating before.
        suggests_ahead: attempts run while `poll` waits, so suggestions are made ahead by a thread.
        keeps_paused: an objective of the user's own goes on where it was paused, which it else does only in a workload.
        patience: the most seconds, on its clock, that `poll` may wait for an event.
        dashboard: where a person can watch the workers, "" for nowhere.
    """

    name: ClassVar[str]
    commits_each: ClassVar[bool] = False
    suggests_ahead: ClassVar[bool] = False
    estimates: ClassVar[bool] = False
    keeps_paused: ClassVar[bool] = False
    patience: ClassVar[float] = 0.25
    dashboard: str = ""
    num_slots: int
    free_slots: int

    @abstractmethod
    def submit(self, assignment: Assignment) -> None:
        """Begin an attempt; needs `assignment.num_ranks` free slots and returns at once."""

    @abstractmethod
    def halt(self, trial: int, attempt: int, how: Halt) -> None:
        """Ask a running attempt to end soon; no effect where it has ended. Its `Outcome` comes as an event."""

    @abstractmethod
    def kill(self, trial: int, attempt: int, failure: str, message: str) -> None:
        """End a running attempt by force; its `Outcome` is FAILED with this failure."""

    @abstractmethod
    def poll(self, handle: Callable[[Event], None], timeout: float) -> int:
        """Wait up to `timeout` seconds for events, pass each to `handle` in order, return how many there were.

        `handle` may call `submit`, `halt` and `kill`. The inline dispatcher runs a whole attempt in here, calling
        `handle` at each report.
        """

    @abstractmethod
    def now(self) -> float:
        """Seconds since the dispatcher began, on its own monotonic or virtual clock."""

    def spend(self, seconds: float) -> None:
        """The controller has thought for so many real seconds; a virtual clock may let them pass."""
        return

    @abstractmethod
    def close(self) -> None:
        """Free everything it started; running attempts are ended by force."""
