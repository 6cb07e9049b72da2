"""Runs trials on Ray: a pool of workers, one for each slot, here or on a cluster."""

import io
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import ray

from automl.core import Resources
from automl.core.worker_range import WorkerRange, read_workers
from automl.dispatch.base import Dispatcher, GangShape
from automl.errors import AutomlError
from workers.files.folder import Folder
from workers.protocol import Assignment, Event, StopRequest
from workers.runtime.pickling import pickle_objective

from . import shared_disk, timeouts
from .attempt import RayAttempt
from .cluster_head import ClusterHead
from .pool import WorkerPool
from .pool_size import PoolSize
from .session import RaySession


class RayDispatcher(Dispatcher):
    """Runs attempts on a pool of actors, each rank in a process that its actor's parent forks.

    A worker that dies is replaced; whether its trial runs again is the controller's decision. If
    a node is lost, room for as many workers is asked for elsewhere, while the others go on. If a
    node is about to be taken away, its trials are asked to end with a checkpoint. A trial of n
    ranks takes n workers, on as few nodes as possible.

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
    suggests_ahead: ClassVar[bool] = True
    estimates: ClassVar[bool] = True
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
        self._begun = self._usable = self._nodes_checked = time.monotonic()
        file = io.BytesIO()
        if objective is not None:
            pickle_objective(objective, file)
        blob = None if objective is None else file.getvalue()
        self._attempts: dict[tuple[int, int], RayAttempt] = {}
        self._slots: dict[tuple[int, int], list[int]] = {}  # of each attempt
        self._draining: set[tuple[int, int]] = set()  # attempts on nodes that are taken away
        self._outcomes: list[Event] = []  # of attempts that were killed, for the next poll
        wanted = read_workers(workers)
        self._session = RaySession(address, wanted.max if wanted else None, resources)
        try:
            self.dashboard = self._session.dashboard
            self._cluster_head = ClusterHead(
                self._session.head_address,
                self._session.raylet_socket,
                own=self._session.is_own,
            )
            self._pool = WorkerPool(sweep, resources, blob, workload)
            room = wanted or WorkerRange(self._session.num_slots, self._session.num_slots)
            self._size = PoolSize(self._pool, resources, room)
        except BaseException:
            self._session.close()
            raise

    @property
    def num_slots(self) -> int:  # type: ignore[override]
        """How many slots are in use."""
        return len(self._pool.workers) - len(self._pool.health.quarantined)

    @property
    def free_slots(self) -> int:  # type: ignore[override]
        """How many workers are idle."""
        return self._size.num_free(self._busy())

    @property
    def most_slots(self) -> int:
        """How many workers there may be."""
        return self._size.workers.max

    @property
    def waits_for(self) -> str:  # type: ignore[override]
        """Workers that do not start, for a person; "" if there are none."""
        return self._pool.waits_for

    @property
    def trouble(self) -> str:  # type: ignore[override]
        """Slots that are out of use, for a person; "" if there are none."""
        return self._pool.health.trouble

    def submit(self, assignment: Assignment) -> None:
        """Begin an attempt on free workers."""
        slots = self._pool.acquire(GangShape(assignment.num_ranks, assignment.ranks_together))
        key = (assignment.trial, assignment.attempt)
        self._attempts[key] = RayAttempt(assignment, [self._pool.worker(slot) for slot in slots])
        self._slots[key] = slots

    def fits(self, shape: GangShape) -> bool:
        """Whether a trial of this shape can begin on the free slots."""
        return shape.ranks <= self.free_slots and self._pool.fits(shape)

    def demand(self, waiting: Sequence[GangShape], more: int) -> None:
        """Ask for slots, and give back those that nobody needs."""
        self._size.demand(waiting, more)

    def scale(self, workers: WorkerRange) -> None:
        """Have another number of slots. Those that are too many end after their attempts."""
        self._size.scale(workers)

    def stop(self, trial: int, attempt: int, how: StopRequest) -> None:
        """Ask a running attempt to stop."""
        if running := self._attempts.get((trial, attempt)):
            running.gang.stop(how)

    def kill(self, trial: int, attempt: int, failure: str, message: str) -> None:
        """End a running attempt by force."""
        if running := self._attempts.get((trial, attempt)):
            self._outcomes += self._release_ended(running, running.gang.kill(failure, message))

    def poll(self, handle: Callable[[Event | None], None], timeout: float) -> None:
        """Wait for events of the workers.

        Raises:
            AutomlError: the cluster's head is lost, or all nodes are lost and no others come.
        """
        self._cluster_head.check()
        events, self._outcomes = self._outcomes, []
        owners: dict[Any, RayAttempt | None] = {
            ref: attempt for attempt in self._attempts.values() for ref in attempt.refs
        }
        owners |= dict.fromkeys(self._pool.starting)
        for ref in _ready(list(owners), 0.0 if events else timeout):
            attempt = owners[ref]
            if attempt is None:
                self._pool.worker_started(ref, self._busy())
            elif attempt.gang.outcome is None:  # else an earlier event has ended it
                events += self._release_ended(attempt, attempt.receive(ref))
        for attempt in list(self._attempts.values()):
            events += self._release_ended(attempt, attempt.gang.watch())
        if self._pool.vacant or self._nodes_due():
            events += self._replace_lost()
        self._size.adjust(self._busy())
        for event in events:
            handle(event)

    def nodes_without(self, folder: Folder) -> list[str]:
        """See `Dispatcher.nodes_without`."""
        return shared_disk.nodes_without(folder)

    def now(self) -> float:
        """Seconds since the dispatcher's constructor was called."""
        return time.monotonic() - self._begun

    def close(self) -> None:
        """End the workers, and Ray if it was started here."""
        try:
            if self._cluster_head.answers():
                self._pool.close()
        finally:
            self._session.close()

    def _release_ended(self, attempt: RayAttempt, events: list[Event]) -> list[Event]:
        """Release the slots of an attempt if it has ended; returns the events."""
        events = [attempt.placed(event) for event in events]
        gang = attempt.gang
        key = (gang.assignment.trial, gang.assignment.attempt)
        if gang.outcome is not None and self._attempts.pop(key, None) is not None:
            slots = self._slots.pop(key)
            lost = {slots[rank] for rank in attempt.lost}
            problems = {slots[rank]: text for rank, text in gang.gpu_problems.items()}
            self._pool.release(slots, lost, problems)
        return events

    def _nodes_due(self) -> bool:
        return time.monotonic() - self._nodes_checked >= timeouts.NODE_POLL_SECONDS

    def _replace_lost(self) -> list[Event]:
        """Replace lost workers and end the attempts on lost nodes, so that they are tried again.

        Raises:
            AutomlError: no worker is left, and for a long time no node has come.
        """
        if not self._cluster_head.answers():
            return []
        self._pool.replace_lost()
        now = time.monotonic()
        patience = (
            timeouts.ELASTIC_SECONDS if self._size.workers.elastic else timeouts.ALL_LOST_SECONDS
        )
        if self._attempts or self._pool.free:
            self._usable = now
        elif now - self._usable > patience:
            raise AutomlError(
                f"for {patience:g} s no worker could be started in place of those "
                "that were lost with their nodes; resume the sweep when the cluster is whole again"
            )
        if not self._nodes_due():
            return []
        self._nodes_checked = now
        for key in self._attempts_on(self._pool.find_draining()) - self._draining:
            self._draining.add(key)
            self._attempts[key].gang.stop(StopRequest.INTERRUPT)
        self._draining &= self._attempts.keys()
        events: list[Event] = []
        for key in self._attempts_on(self._pool.find_stuck()):
            attempt = self._attempts[key]
            ended = attempt.gang.kill("preempted", "the node of its worker is gone")
            events += self._release_ended(attempt, ended)
        return events

    def _attempts_on(self, slots: set[int]) -> set[tuple[int, int]]:
        return {key for key, own in self._slots.items() if slots.intersection(own)}

    def _busy(self) -> set[int]:
        return {slot for slots in self._slots.values() for slot in slots}


def _ready(refs: list[Any], timeout: float) -> list[Any]:
    """Wait for at least one of the references; returns all that are ready."""
    if not refs:
        time.sleep(timeout)
        return []
    ray.wait(refs, num_returns=1, timeout=timeout)
    ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
    return list(ready)
