"""Runs trials in processes of this machine, one for each rank of an attempt."""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from automl.core import Resources
from automl.dispatch.gangs import GangDispatcher, Message
from workers.protocol import Assignment
from workers.runtime.devices import environment_of
from workers.runtime.gang import Gang
from workers.runtime.processes import ObjectiveFile, Parent, RankProcess, receive_all


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
        self._objective = ObjectiveFile(objective)
        self._ranks: dict[RankProcess, tuple[Gang, int]] = {}
        self._free = set(self.slots)
        threads = max(1, resources.cpus)
        self._parents = [
            Parent(f"{sweep} worker {slot}", self._objective, workload, threads, environment, gpus)
            for slot, environment in enumerate(environments)
            if (gpus := resources.gpus) > 0 or slot == 0
        ]

    @property
    def free_slots(self) -> int:  # type: ignore[override]
        return len(self._free)

    def submit(self, assignment: Assignment) -> None:
        slots = sorted(self._free)[: assignment.num_ranks]
        self._free -= set(slots)
        ranks = [self._parents[slot % len(self._parents)].start(assignment) for slot in slots]
        gang = Gang(assignment, ranks)
        self._ranks |= {process: (gang, rank) for rank, process in enumerate(ranks)}
        self.gangs[assignment.trial, assignment.attempt] = (gang, slots)

    def close(self) -> None:
        for parent in self._parents:
            parent.close()
        for gang, _ in self.gangs.values():
            gang.close()
        self._objective.close()

    def _receive(self, timeout: float) -> Iterator[Message]:
        owners = self._ranks  # replaced by another if an attempt ends meanwhile
        for process, message in receive_all(self._parents, list(owners), timeout):
            yield (*owners[process], message)

    def _release(self, gang: Gang, rank: int, slot: int) -> None:
        self._ranks = {process: of for process, of in self._ranks.items() if of[0] is not gang}
        self._free.add(slot)
