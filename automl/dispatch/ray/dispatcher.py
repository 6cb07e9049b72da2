"""Runs trials on Ray: a pool of workers, one for each slot, here or on a cluster."""

import io
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, ClassVar, Final

import ray

from automl.core import Resources
from automl.core.resources import WorkerRange, read_workers
from automl.dispatch.base import GangShape
from automl.dispatch.local import GangDispatcher, Message
from automl.errors import AutomlError
from workers.protocol import Assignment, Event
from workers.runtime.parent import pickle_objective
from workers.runtime.processes import Gang

from .attempt import RayAttempt
from .pool import WorkerPool
from .session import RaySession

ALL_LOST_SECONDS: Final = 300.0  # for a new node, if no worker of the sweep is left
ELASTIC_SECONDS: Final = 1800.0  # the same if the number of workers is elastic: clouds are slow


class RayDispatcher(GangDispatcher):
    """Runs attempts on a pool of actors, each rank in a process that its actor's parent forks.

    A worker that dies is replaced. If a node is lost, Ray looks for room for its workers elsewhere,
    while the others go on. A trial of n ranks takes n workers, on as few nodes as possible.

    Args:
        sweep: name of the sweep, for the dashboard.
        workers: how many; None for as many as Ray has room for.
        resources: of a slot.
        objective: the user's; workload: name of the workload if there is no objective.
        address: of a running cluster, "auto" to find one, None to start Ray here.

    Raises:
        UsageError: Ray cannot be reached or has no room, or the objective cannot be pickled.
    """

    name = "ray"
    elastic: ClassVar[bool] = True

    def __init__(
        self,
        sweep: str,
        workers: WorkerRange | int | None,
        resources: Resources,
        *,
        objective: Callable[[Any], Any] | None = None,
        workload: str | None = None,
        address: str | None = None,
    ) -> None:
        super().__init__()
        self._usable = time.monotonic()
        file = io.BytesIO()
        if objective is not None:
            pickle_objective(objective, file)
        blob = None if objective is None else file.getvalue()
        self._attempts: dict[Gang, RayAttempt] = {}
        wanted = read_workers(workers)
        self._session = session = RaySession(address, wanted.max if wanted else None, resources)
        try:
            self.dashboard = session.dashboard
            room = wanted or WorkerRange(session.num_slots, session.num_slots)
            self._pool = WorkerPool(sweep, resources, blob, workload, room)
        except BaseException:
            session.close()
            raise

    @property
    def slots(self) -> Collection[int]:  # type: ignore[override]
        """The numbers of all slots, also of those whose worker has not started."""
        return self._pool.actors

    @property
    def free_slots(self) -> int:  # type: ignore[override]
        return max(0, min(len(self._pool.free), self.most_slots - len(self._busy())))

    @property
    def most_slots(self) -> int:
        return self._pool.workers.max

    def submit(self, assignment: Assignment) -> None:
        slots = self._pool.acquire(GangShape(assignment.num_ranks, assignment.ranks_together))
        actors, nodes = self._pool.actors, self._pool.nodes
        attempt = RayAttempt(
            assignment, [actors[slot] for slot in slots], [nodes[slot] for slot in slots]
        )
        self._attempts[attempt.gang] = attempt
        self.gangs[attempt.key] = (attempt.gang, slots)

    def fits(self, shape: GangShape) -> bool:
        return shape.ranks <= self.free_slots and self._pool.fits(shape)

    def demand(self, waiting: Sequence[GangShape], more: int) -> None:
        """Ask for slots, and give back those that nobody needs, at the next `poll`."""
        self._pool.waiting, self._pool.more = waiting, more

    def scale(self, workers: WorkerRange) -> None:
        """Have another number of slots. Those that are too many end after their attempts.

        Nothing is given back before the next `poll`: a trial may be committed that gets its slots.
        """
        self._pool.workers = workers

    def close(self) -> None:
        try:
            self._pool.close()
        finally:
            self._session.close()

    def _receive(self, timeout: float) -> Iterator[Message]:
        """Wait for messages, then replace what is lost.

        Raises:
            AutomlError: all nodes are lost and no others come.
        """
        owners = {ref: one for one in self._attempts.values() for ref in one.refs}
        for ref in _ready([*owners, *self._pool.starting], timeout):
            if ref in owners:
                yield from owners[ref].receive(ref)
            else:
                self._pool.worker_started(ref)
        for attempt in self._attempts.values():
            attempt.kill_silent()
        self._pool.replace_lost()
        self._pool.adjust(self._busy())
        now, elastic = time.monotonic(), self._pool.workers.elastic
        patience = ELASTIC_SECONDS if elastic else ALL_LOST_SECONDS
        if self.gangs or self._pool.free or not self._pool.num_replaced:
            self._usable = now
        elif now - self._usable > patience:
            raise AutomlError(
                f"for {patience:g} s no worker could be started in place of those "
                "that were lost with their nodes; resume the sweep when the cluster is whole again"
            )

    def _after(self, gang: Gang, events: list[Event]) -> list[Event]:
        events = super()._after(gang, events)
        if gang.outcome is not None:
            del self._attempts[gang]
        return events

    def _release(self, gang: Gang, rank: int, slot: int) -> None:
        if rank in self._attempts[gang].lost:
            self._pool.vacant.add(slot)
        else:
            self._pool.free.add(slot)

    def _busy(self) -> set[int]:
        return {slot for _, slots in self.gangs.values() for slot in slots}


def _ready(refs: list[Any], timeout: float) -> list[Any]:
    """Wait for at least one of the references; returns all that are ready."""
    if not refs:
        time.sleep(timeout)
        return []
    ray.wait(refs, num_returns=1, timeout=timeout)
    ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
    return list(ready)
