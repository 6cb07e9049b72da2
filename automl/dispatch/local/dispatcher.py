"""Runs trials in processes of this machine, one for each rank of an attempt."""

import time
from collections.abc import Callable
from typing import Any, ClassVar

from automl.core import Resources
from automl.dispatch._slot_health import SlotHealth
from automl.dispatch.base import Dispatcher
from automl.errors import AutomlError
from workers.protocol import Assignment, Event, StopRequest
from workers.runtime.devices import environment_of
from workers.runtime.gang import Gang
from workers.runtime.processes import ObjectiveFile, Parent, RankProcess, receive_all


class LocalDispatcher(Dispatcher):
    """Runs each rank of an attempt in a process that is forked for it.

    Slots without GPUs share one parent, which has imported and loaded everything once; a slot with
    GPUs has its own. Whether a trial whose process has died runs again is the controller's
    decision. A slot whose GPU fails again and again is taken out of use. A trial of n ranks takes
    n slots.

    Args:
        sweep: name of the sweep, for the names of the processes.
        num_slots: how many.
        resources: of a slot.
        objective: the user's; workload: name of the workload if there is no objective.

    Raises:
        UsageError: the machine has too few GPUs, or the objective cannot be pickled.
    """

    name = "local"
    suggests_ahead: ClassVar[bool] = True
    starts_fast: ClassVar[bool] = True
    estimates: ClassVar[bool] = True

    def __init__(
        self,
        sweep: str,
        num_slots: int,
        resources: Resources,
        *,
        objective: Callable[[Any], Any] | None = None,
        workload: str | None = None,
    ) -> None:
        self._begun = time.monotonic()
        self.num_slots = num_slots
        self._health = SlotHealth(lambda: range(num_slots))
        environments = [environment_of(slot, resources.gpus) for slot in range(num_slots)]
        self._objective = ObjectiveFile(objective)
        self._gangs: dict[tuple[int, int], tuple[Gang, list[int], list[RankProcess]]] = {}
        self._outcomes: list[Event] = []  # of attempts that were killed, for the next poll
        self._free = set(range(num_slots))
        threads = max(1, resources.cpus)
        self._parents = [
            Parent(f"{sweep} worker {slot}", self._objective, workload, threads, environment, gpus)
            for slot, environment in enumerate(environments)
            if (gpus := resources.gpus) > 0 or slot == 0
        ]

    @property
    def free_slots(self) -> int:  # type: ignore[override]
        """How many slots have no attempt."""
        return len(self._free)

    @property
    def trouble(self) -> str:  # type: ignore[override]
        """Slots that are out of use, for a person; "" if there are none."""
        return self._health.trouble

    def submit(self, assignment: Assignment) -> None:
        """Begin an attempt on free slots."""
        slots = sorted(self._free)[: assignment.num_ranks]
        if len(slots) < assignment.num_ranks:
            raise AutomlError(
                f"the attempt needs {assignment.num_ranks} free slots, there are {len(slots)}"
            )
        self._free -= set(slots)
        ranks = [self._parents[slot % len(self._parents)].start(assignment) for slot in slots]
        key = (assignment.trial, assignment.attempt)
        self._gangs[key] = (Gang(assignment, ranks), slots, ranks)

    def stop(self, trial: int, attempt: int, how: StopRequest) -> None:
        """Ask a running attempt to stop."""
        if running := self._gangs.get((trial, attempt)):
            running[0].stop(how)

    def kill(self, trial: int, attempt: int, failure: str, message: str) -> None:
        """End a running attempt by force."""
        if running := self._gangs.get((trial, attempt)):
            gang = running[0]
            self._outcomes += self._release_ended(gang, gang.kill(failure, message))

    def poll(self, handle: Callable[[Event], None], timeout: float) -> None:
        """Wait for events of the attempts.

        Raises:
            UsageError: the objective or workload cannot be loaded.
            AutomlError: processes cannot be started, or no GPU can be used.
        """
        events, self._outcomes = self._outcomes, []
        owners = {
            rank: (gang, number)
            for gang, _, ranks in self._gangs.values()
            for number, rank in enumerate(ranks)
        }
        for rank, message in receive_all(self._parents, list(owners), 0.0 if events else timeout):
            gang, number = owners[rank]
            if gang.outcome is None:  # else an earlier message has ended it
                events += self._release_ended(gang, gang.receive(number, message))
        for gang, _, _ in list(self._gangs.values()):
            events += self._release_ended(gang, gang.watch())
        for event in events:
            handle(event)

    def now(self) -> float:
        """Seconds since the dispatcher's constructor was called."""
        return time.monotonic() - self._begun

    def close(self) -> None:
        """End all processes."""
        for parent in self._parents:
            parent.close()
        for gang, _, _ in self._gangs.values():
            gang.close()
        self._objective.close()

    def _release_ended(self, gang: Gang, events: list[Event]) -> list[Event]:
        """Free the slots of an attempt if it has ended; returns the events."""
        key = (gang.assignment.trial, gang.assignment.attempt)
        if gang.outcome is None or key not in self._gangs:
            return events
        _, slots, _ = self._gangs.pop(key)
        for rank, slot in enumerate(slots):
            if self._health.attempt_ended(slot, gang.gpu_problems.get(rank, "")):
                self.num_slots -= 1
            else:
                self._free.add(slot)
        return events
