"""Runs trials in warm processes of this machine, one for each slot."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar, Final

from automl.core import Resources
from automl.dispatch._slot_health import SlotHealth
from automl.dispatch.base import Dispatcher
from automl.errors import AutomlError, UsageError
from workers.protocol import Assignment, Event, StopRequest
from workers.runtime.devices import environment_of
from workers.runtime.gang import Gang
from workers.runtime.process_worker import Ready
from workers.runtime.processes import ObjectiveFile, WorkerProcess, receive_all

MAX_FAILED_STARTS: Final = 3  # of the worker of one slot, in a row


class LocalDispatcher(Dispatcher):
    """Runs attempts on a pool of warm processes.

    A worker that dies is replaced; whether its trial runs again is the controller's decision. A
    slot whose GPU fails again and again is taken out of use. A trial of n ranks takes n workers.

    Args:
        sweep: name of the sweep, for the names of the processes.
        num_slots: how many workers.
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
        self._sweep = sweep
        self._workload = workload
        self._threads = max(1, resources.cpus)
        self._gpus = resources.gpus
        self._health = SlotHealth(lambda: range(num_slots))
        self._environments = [environment_of(slot, resources.gpus) for slot in range(num_slots)]
        self._objective = ObjectiveFile(objective)
        self._gangs: dict[tuple[int, int], Gang] = {}
        self._slots: dict[tuple[int, int], list[int]] = {}  # of each attempt, by rank
        self._outcomes: list[Event] = []  # of attempts that were killed, for the next poll
        self._failed_starts: Counter[int] = Counter()
        self._workers = [self._start(slot) for slot in range(num_slots)]
        # A new worker takes its first attempt while it starts; one in place of a dead worker not.
        self._free = set(range(num_slots))

    @property
    def free_slots(self) -> int:  # type: ignore[override]
        """How many workers are idle."""
        return len(self._free)

    @property
    def trouble(self) -> str:  # type: ignore[override]
        """Slots that are out of use, for a person; "" if there are none."""
        return self._health.trouble

    def submit(self, assignment: Assignment) -> None:
        """Begin an attempt on free workers, those that are ready first."""
        free = sorted(self._free, key=lambda slot: (not self._workers[slot].ready, slot))
        slots = free[: assignment.num_ranks]
        if len(slots) < assignment.num_ranks:
            raise AutomlError(
                f"the attempt needs {assignment.num_ranks} free slots, there are {len(slots)}"
            )
        self._free -= set(slots)
        key = (assignment.trial, assignment.attempt)
        self._slots[key] = slots
        self._gangs[key] = Gang(assignment, [self._workers[slot] for slot in slots])

    def stop(self, trial: int, attempt: int, how: StopRequest) -> None:
        """Ask a running attempt to stop."""
        if gang := self._gangs.get((trial, attempt)):
            gang.stop(how)

    def kill(self, trial: int, attempt: int, failure: str, message: str) -> None:
        """End a running attempt by force."""
        if gang := self._gangs.get((trial, attempt)):
            self._outcomes += self._release_ended(gang, gang.kill(failure, message))

    def poll(self, handle: Callable[[Event], None], timeout: float) -> None:
        """Wait for events of the workers.

        Raises:
            UsageError: workers cannot load the objective or workload.
            AutomlError: workers cannot be started, or no GPU can be used.
        """
        events, self._outcomes = self._outcomes, []
        workers = list(self._workers)
        for slot, message in receive_all(workers, 0.0 if events else timeout):
            if workers[slot] is not self._workers[slot]:
                continue  # an earlier message has ended its attempt by force
            if isinstance(message, Ready):
                self._worker_started(slot, message)
            elif message is None:
                events += self._worker_died(slot)
            elif gang := self._gang_of(slot):
                rank = self._rank_of(slot, gang)
                received = gang.receive(rank, message.events, message.heartbeat)
                events += self._release_ended(gang, received)
        for gang in list(self._gangs.values()):
            events += self._release_ended(gang, gang.watch())
        for event in events:
            handle(event)

    def now(self) -> float:
        """Seconds since the dispatcher's constructor was called."""
        return time.monotonic() - self._begun

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.kill()
        for gang in self._gangs.values():
            gang.close()
        self._objective.close()

    def _start(self, slot: int) -> WorkerProcess:
        return WorkerProcess(
            f"{self._sweep} worker {slot}",
            self._objective,
            self._workload,
            self._threads,
            self._environments[slot],
            self._gpus,
        )

    def _gang_of(self, slot: int) -> Gang | None:
        found = (key for key, slots in self._slots.items() if slot in slots)
        return next((self._gangs[key] for key in found), None)

    def _rank_of(self, slot: int, gang: Gang) -> int:
        return self._slots[gang.assignment.trial, gang.assignment.attempt].index(slot)

    def _worker_started(self, slot: int, ready: Ready) -> None:
        if ready.broken:
            raise UsageError(f"the workers cannot load what they are to run: {ready.broken}")
        self._failed_starts.pop(slot, None)
        if self._gang_of(slot) is not None:
            return  # the attempt notices a GPU that cannot be used
        if not ready.gpu_problem:
            self._free.add(slot)
        elif self._health.start_failed(slot, ready.gpu_problem):
            self._retire(slot)
        else:
            self._replace(slot)

    def _worker_died(self, slot: int) -> list[Event]:
        worker = self._workers[slot]
        death, known = worker.death(), worker.facts_of_death
        if not worker.ready:
            self._failed_starts[slot] += 1
            if self._failed_starts[slot] >= MAX_FAILED_STARTS:
                words = worker.last_words() or "it printed nothing"
                raise AutomlError(
                    f"{death} before it was ready, {MAX_FAILED_STARTS} times in a row: {words}"
                )
        worker.kill()  # the processes that it has started may still run
        gang = self._gang_of(slot)
        if gang is None:
            self._replace(slot)
            return []
        return self._release_ended(gang, gang.lose(self._rank_of(slot, gang), death, **known))

    def _replace(self, slot: int) -> None:
        """Start a new worker; the slot is free once it is ready."""
        self._workers[slot].kill()
        self._free.discard(slot)
        self._workers[slot] = self._start(slot)

    def _retire(self, slot: int) -> None:
        """Take a slot out of use."""
        self._workers[slot].kill()
        self._free.discard(slot)
        self.num_slots -= 1

    def _release_ended(self, gang: Gang, events: list[Event]) -> list[Event]:
        """Free the slots of an attempt if it has ended; returns the events."""
        key = (gang.assignment.trial, gang.assignment.attempt)
        if gang.outcome is not None and self._gangs.pop(key, None) is not None:
            slots = self._slots.pop(key)
            for rank, slot in enumerate(slots):
                if self._health.attempt_ended(slot, gang.gpu_problems.get(rank, "")):
                    self._retire(slot)
                elif rank in gang.spent:
                    self._replace(slot)
                else:
                    self._free.add(slot)
        return events
