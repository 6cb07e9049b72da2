"""What dispatchers share that run each rank of an attempt in a process of its own."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable
from typing import ClassVar

from workers.protocol import Death, Event, StopRequest
from workers.runtime.gang import Gang
from workers.runtime.parent import News

from .base import Dispatcher

Message = tuple[Gang, int, News | Death]  # and the rank that it comes from


class GangDispatcher(Dispatcher):
    """Keeps the gang of each running attempt.

    Whether a trial whose process has died runs again is the controller's decision.

    Attributes:
        gangs: the running attempts by trial and attempt, each with its slots by rank.
        slots: the numbers of all slots, now.
    """

    suggests_ahead: ClassVar[bool] = True
    estimates: ClassVar[bool] = True
    slots: Collection[int]

    def __init__(self) -> None:
        super().__init__()
        self.gangs: dict[tuple[int, int], tuple[Gang, list[int]]] = {}
        self._killed: list[Event] = []  # outcomes of attempts that were killed, for the next poll

    @property
    def num_slots(self) -> int:  # type: ignore[override]
        return len(self.slots)

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
            AutomlError: workers cannot be started.
        """
        events, self._killed = self._killed, []
        for gang, rank, message in self._receive(0.0 if events else timeout):
            if gang.outcome is None:  # else an earlier message has ended it
                events += self._after(gang, gang.receive(rank, message))
        for gang, _ in list(self.gangs.values()):
            events += self._after(gang, gang.watch())
        for event in events:
            handle(event)

    @abstractmethod
    def _receive(self, timeout: float) -> Iterable[Message]:
        """Wait for messages of ranks."""

    @abstractmethod
    def _release(self, gang: Gang, rank: int, slot: int) -> None:
        """A rank has ended: free its slot."""

    def _after(self, gang: Gang, events: list[Event]) -> list[Event]:
        """Free the slots of an attempt if it has ended; returns the events."""
        key = (gang.assignment.trial, gang.assignment.attempt)
        if gang.outcome is None or key not in self.gangs:
            return events
        for rank, slot in enumerate(self.gangs.pop(key)[1]):
            self._release(gang, rank, slot)
        return events
