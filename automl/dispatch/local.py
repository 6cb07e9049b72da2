"""Runs trials in processes of this machine, one for each rank of an attempt."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, ClassVar

from automl.core import Resources
from workers.protocol import Assignment, Event, StopRequest
from workers.runtime.devices import environment_of
from workers.runtime.parent import News
from workers.runtime.processes import Gang, Parent, RankProcess, objective_file, receive_all

from .base import Dispatcher

Message = tuple[Gang, int, News]  # and the rank that it comes from


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


class LocalDispatcher(GangDispatcher):
    """Runs each rank of an attempt in a process that is forked for it.

    Slots without GPUs share one parent, which has imported and loaded everything once; a slot with
    GPUs has its own. A trial of n ranks takes n slots.

    Args:
        sweep: name of the sweep, for the names of the processes.
        num_slots: how many.
        resources: of a slot.
        objective: the user's; workload: name of the workload if there is no objective.

    Raises:
        UsageError: the machine has too few GPUs, or the objective cannot be pickled.
    """

    name = "local"
    starts_fast: ClassVar[bool] = True

    def __init__(
        self,
        sweep: str,
        num_slots: int,
        resources: Resources,
        *,
        objective: Callable[[Any], Any] | None = None,
        workload: str | None = None,
    ) -> None:
        super().__init__()
        self.slots = range(num_slots)
        environments = [environment_of(slot, resources.gpus) for slot in self.slots]
        file = objective_file(objective)
        self._ranks: dict[RankProcess, tuple[Gang, int]] = {}
        self._free = set(self.slots)
        threads = max(1, resources.cpus)
        self._parents = [
            Parent(f"{sweep} worker {slot}", file, workload, threads, environment, gpus)
            for slot, environment in enumerate(environments)
            if (gpus := resources.gpus) > 0 or slot == 0
        ]

    @property
    def free_slots(self) -> int:  # type: ignore[override]
        return len(self._free)

    def submit(self, assignment: Assignment) -> None:
        slots = sorted(self._free)[: assignment.num_ranks]
        self._free -= set(slots)
        ranks = [RankProcess(self._parents[slot % len(self._parents)]) for slot in slots]
        gang = Gang(assignment, ranks)
        self._ranks |= {process: (gang, rank) for rank, process in enumerate(ranks)}
        self.gangs[assignment.trial, assignment.attempt] = (gang, slots)

    def close(self) -> None:
        for parent in self._parents:
            parent.close()
        for gang, _ in self.gangs.values():
            gang.close()

    def _receive(self, timeout: float) -> Iterator[Message]:
        owners = self._ranks  # replaced by another if an attempt ends meanwhile
        for process, message in receive_all(self._parents, list(owners), timeout):
            yield (*owners[process], message)

    def _release(self, gang: Gang, rank: int, slot: int) -> None:
        self._ranks = {process: of for process, of in self._ranks.items() if of[0] is not gang}
        self._free.add(slot)
