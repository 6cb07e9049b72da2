"""The interface of dispatchers; the controller does not distinguish between them."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from automl.core import WorkerRange
from automl.errors import AutomlError
from workers.protocol import Assignment, Event, StopRequest

T = TypeVar("T")


@dataclass(frozen=True)
class GangShape:
    """The slots of one trial.

    Args:
        ranks: one slot each.
        together: this many consecutive ranks must be on one node; it divides `ranks`.
    """

    ranks: int
    together: int = 1


class Dispatcher(ABC):
    """Runs assignments on slots; one assignment of n ranks takes n slots. Used from one thread.

    Exactly one `Outcome` follows each submitted assignment, even if its worker is lost.

    Attributes:
        estimates: attempts run for real, so that their memory is worth estimating first.
        serial: `poll` runs one whole attempt, which waits while `handle` runs. So one trial is
            proposed and begun at a time, and a decision has taken effect when `handle` returns.
        suggests_ahead: attempts run while `poll` waits, so a thread makes suggestions meanwhile.
        starts_fast: it starts trial 0 sooner than a suggester could be imported.
        keeps_paused: user objectives can resume after a pause. (Workloads always can.)
        patience: the most seconds, on its clock, that `poll` may wait for an event.
        dashboard: address of a page that shows the workers; "" if there is none.
        num_slots, free_slots: the number of all slots, and of those without an attempt.
        elastic: slots come and go, so it must know what could begin (`demand`).
    """

    name: ClassVar[str]
    serial: ClassVar[bool] = False
    suggests_ahead: ClassVar[bool] = False
    estimates: ClassVar[bool] = False
    starts_fast: ClassVar[bool] = False
    keeps_paused: ClassVar[bool] = False
    patience: ClassVar[float] = 0.25
    elastic: ClassVar[bool] = False
    dashboard: str = ""
    num_slots: int
    free_slots: int

    def __init__(self) -> None:
        self._begun = time.monotonic()

    @property
    def most_slots(self) -> int:
        """How many slots there may be; no trial can have more ranks."""
        return self.num_slots

    def fits(self, shape: GangShape) -> bool:
        """Whether a trial of this shape can begin on the free slots."""
        return shape.ranks <= self.free_slots

    def demand(self, waiting: Sequence[GangShape], more: int) -> None:
        """What would begin now if there were slots for it.

        Args:
            waiting: the shapes of the waiting trials, the next one first.
            more: how many trials may follow them.
        """
        return

    def scale(self, workers: WorkerRange) -> None:
        """Have another number of slots. Those that are too many end after their attempts.

        Raises:
            AutomlError: this dispatcher cannot do that.
        """
        raise AutomlError(
            f"the number of workers of a sweep on {self.name!r} cannot change while it runs: "
            "interrupt it (Ctrl-C), scale it, then resume it"
        )

    @abstractmethod
    def submit(self, assignment: Assignment) -> None:
        """Begin an attempt and return at once; needs `assignment.num_ranks` free slots."""

    @abstractmethod
    def stop(self, trial: int, attempt: int, how: StopRequest) -> None:
        """Ask a running attempt to stop; no effect if it has ended. Its `Outcome` is an event."""

    @abstractmethod
    def kill(self, trial: int, attempt: int, failure: str, message: str) -> None:
        """End a running attempt by force; its `Outcome` is FAILED with this failure."""

    @abstractmethod
    def poll(self, handle: Callable[[Event | None], None], timeout: float) -> None:
        """Wait up to `timeout` seconds for events and pass each to `handle`, in order.

        `handle` may call `submit`, `stop` and `kill`. The inline dispatcher runs a whole attempt
        in here: it calls `handle` at each report, in the thread that reports, and with None now
        and then while the objective computes. Calls of `handle` never overlap.
        """

    def now(self) -> float:
        """Seconds since the dispatcher began, on its monotonic or virtual clock."""
        return time.monotonic() - self._begun

    def charged(self, compute: Callable[[], T]) -> T:
        """What the controller computes; a virtual clock may advance while it does."""
        return compute()

    @abstractmethod
    def close(self) -> None:
        """Kill running attempts and free all resources that the dispatcher has acquired."""
