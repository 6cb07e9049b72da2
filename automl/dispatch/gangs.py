"""What dispatchers share that run each rank of an attempt in a process of its own."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import ClassVar, Final

from automl.errors import AutomlError
from workers.protocol import Death, Event, StopRequest
from workers.runtime.child import News
from workers.runtime.gang import Gang

from .base import Dispatcher

MAX_FAILURES: Final = 3  # of the GPU of one slot, in a row
Message = tuple[Gang, int, News | Death]  # and the rank that it comes from


class GangDispatcher(Dispatcher):
    """Keeps the gang of each running attempt, and takes slots out of use whose GPU always fails.

    Whether a trial whose process has died runs again is the controller's decision.

    Attributes:
        gangs: the running attempts by trial and attempt, each with its slots by rank.
        slots: the numbers of all slots, now.
        quarantined: why slots are out of use. Each attempt has a process of its own, so what an
            earlier one did to the GPU is not to blame.
    """

    suggests_ahead: ClassVar[bool] = True
    estimates: ClassVar[bool] = True
    slots: Collection[int]

    def __init__(self) -> None:
        super().__init__()
        self.gangs: dict[tuple[int, int], tuple[Gang, list[int]]] = {}
        self.quarantined: dict[int, str] = {}
        self._failures: Counter[int] = Counter()  # of GPUs, in a row
        self._killed: list[Event] = []  # outcomes of attempts that were killed, for the next poll

    @property
    def num_slots(self) -> int:  # type: ignore[override]
        return len(self.slots) - len(self.quarantined)

    @property
    def trouble(self) -> str:  # type: ignore[override]
        return "; ".join(
            f"worker {slot} is out of use, since its GPU failed {MAX_FAILURES} times in a row: "
            f"{problem}"
            for slot, problem in self.quarantined.items()
        )

    def stop(self, trial: int, attempt: int, how: StopRequest) -> None:
        if running := self.gangs.get((trial, attempt)):
            running[0].stop(how)

    def kill(self, trial: int, attempt: int, failure: str, message: str) -> None:
        if running := self.gangs.get((trial, attempt)):
            self._killed += self._after(running[0], running[0].kill(failure, message))

    def poll(self, handle: Callable[[Event], None], timeout: float) -> None:
        """Wait for events of the attempts.

        Raises:
            UsageError: the objective or workload cannot be loaded.
            AutomlError: workers cannot be started, or no GPU can be used.
        """
        events, self._killed = self._killed, []
        for gang, rank, message in self._receive(0.0 if events else timeout):
            if gang.outcome is None:  # else an earlier message has ended it
                events += self._after(gang, gang.receive(rank, message))
        for gang, _ in list(self.gangs.values()):
            events += self._after(gang, gang.watch())
        for event in events:
            handle(event)

    def attempt_ended(self, slot: int, gpu_problem: str) -> bool:
        """Whether a slot is out of use after an attempt whose GPU had this problem, "" for none.

        Raises:
            AutomlError: no slot is left.
        """
        self._failures[slot] = self._failures[slot] + 1 if gpu_problem else 0
        if self._failures[slot] < MAX_FAILURES:
            return False
        self.quarantined[slot] = gpu_problem
        if self.quarantined.keys() >= set(self.slots):
            raise AutomlError(
                f"no GPU of the sweep can be used: {self.trouble}. Look at the GPUs with "
                "`nvidia-smi`; the sweep can be resumed"
            )
        return True

    @abstractmethod
    def _receive(self, timeout: float) -> Iterable[Message]:
        """Wait for messages of ranks."""

    @abstractmethod
    def _release(self, gang: Gang, rank: int, slot: int) -> None:
        """A rank has ended: free its slot, unless it is out of use."""

    def _after(self, gang: Gang, events: list[Event]) -> list[Event]:
        """Free the slots of an attempt if it has ended; returns the events."""
        key = (gang.assignment.trial, gang.assignment.attempt)
        if gang.outcome is None or key not in self.gangs:
            return events
        for rank, slot in enumerate(self.gangs.pop(key)[1]):
            self.attempt_ended(slot, gang.gpu_problems.get(rank, ""))
            self._release(gang, rank, slot)
        return events
