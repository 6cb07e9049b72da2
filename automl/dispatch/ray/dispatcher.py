"""Runs trials on Ray: a pool of warm workers, one for each slot, here or on a cluster."""

import time
from collections.abc import Callable
from typing import Any, ClassVar

import ray

from automl.core import Resources
from automl.dispatch.base import Dispatcher
from automl.errors import AutomlError
from workers.protocol import Assignment, Event, StopRequest, lost
from workers.runtime.pickling import pickle_objective

from . import timeouts
from .attempt import RayAttempt
from .cluster_head import ClusterHead
from .pool import WorkerPool
from .session import RaySession


class RayDispatcher(Dispatcher):
    """Runs attempts on a pool of warm actors.

    A worker that dies is replaced; whether its trial runs again is the controller's decision. A
    slot whose node is lost waits for another node, while the others go on. A trial of n ranks
    takes n workers, of one node if possible.

    Args:
        sweep: name of the sweep, for the dashboard.
        num_slots: None for as many as Ray has room for.
        resources: of a slot.
        objective: the user's; workload: name of the workload if there is no objective.
        address: of a running cluster, "auto" to find one, None to start Ray here.

    Raises:
        UsageError: Ray cannot be reached or has no room, or the objective cannot be pickled.
    """

    name = "ray"
    suggests_ahead: ClassVar[bool] = True
    estimates: ClassVar[bool] = True

    def __init__(
        self,
        sweep: str,
        num_slots: int | None,
        resources: Resources,
        *,
        objective: Callable[[Any], Any] | None = None,
        workload: str | None = None,
        address: str | None = None,
    ) -> None:
        self._begun = self._usable = self._nodes_checked = time.monotonic()
        blob = pickle_objective(objective) if objective is not None else None
        self._attempts: dict[tuple[int, int], RayAttempt] = {}
        self._slots: dict[tuple[int, int], list[int]] = {}  # of each attempt
        self._outcomes: list[Event] = []  # of attempts that were killed, for the next poll
        self._session = RaySession(address, num_slots, resources)
        try:
            self.num_slots = self._session.num_slots
            self.dashboard = self._session.dashboard
            self._head = ClusterHead(self._session.head)
            self._pool = WorkerPool(sweep, self.num_slots, resources, blob, workload)
        except BaseException:
            self._session.close()
            raise

    @property
    def free_slots(self) -> int:  # type: ignore[override]
        """How many workers are idle."""
        return len(self._pool.free)

    @property
    def waits_for(self) -> str:  # type: ignore[override]
        """Workers that do not start, for a person; "" if there are none."""
        return self._pool.waits_for

    def submit(self, assignment: Assignment) -> None:
        """Begin an attempt on free workers."""
        slots = self._pool.acquire(assignment.num_ranks)
        key = (assignment.trial, assignment.attempt)
        try:
            self._attempts[key] = RayAttempt(
                assignment, [self._pool.workers[slot] for slot in slots]
            )
        except ray.exceptions.RayError as error:  # the first rank is gone: there is no rendezvous
            message = f"its workers are gone: {' '.join(str(error).split())[:300]}"
            self._outcomes.append(lost(assignment, message))
            self._pool.release(slots, set(slots))
        else:
            self._slots[key] = slots

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
        self._head.check()
        events, self._outcomes = self._outcomes, []
        owners: dict[Any, RayAttempt | None] = {
            ref: attempt for attempt in self._attempts.values() for ref in attempt.refs
        }
        owners |= dict.fromkeys(self._pool.starting)
        for ref in _ready(list(owners), 0.0 if events else timeout):
            attempt = owners[ref]
            if attempt is None:
                busy = {slot for slots in self._slots.values() for slot in slots}
                self._pool.worker_started(ref, busy)
            elif attempt.gang.outcome is None:  # else an earlier event has ended it
                events += self._release_ended(attempt, attempt.receive(ref))
        for attempt in list(self._attempts.values()):
            events += self._release_ended(attempt, attempt.gang.watch())
        if self._pool.vacant or self._nodes_due():
            events += self._replace_lost()
        for event in events:
            handle(event)

    def now(self) -> float:
        """Seconds since the dispatcher's constructor was called."""
        return time.monotonic() - self._begun

    def close(self) -> None:
        """End the workers, and Ray if it was started here."""
        try:
            if self._head.answers():
                self._pool.close()
        finally:
            self._session.close()

    def _release_ended(self, attempt: RayAttempt, events: list[Event]) -> list[Event]:
        """Release the slots of an attempt if it has ended; returns the events."""
        gang = attempt.gang
        key = (gang.assignment.trial, gang.assignment.attempt)
        if gang.outcome is not None and self._attempts.pop(key, None) is not None:
            slots = self._slots.pop(key)
            self._pool.release(slots, {slots[rank] for rank in gang.spent})
        return events

    def _nodes_due(self) -> bool:
        return time.monotonic() - self._nodes_checked >= timeouts.NODE_POLL_SECONDS

    def _replace_lost(self) -> list[Event]:
        """Replace lost workers and end the attempts on lost nodes, so that they are tried again.

        Raises:
            AutomlError: no worker is left, and for a long time no node has come.
        """
        if not self._head.answers():
            return []
        self._pool.replace_lost()
        now = time.monotonic()
        if self._attempts or self._pool.free:
            self._usable = now
        elif now - self._usable > timeouts.ALL_LOST_SECONDS:
            raise AutomlError(
                f"for {timeouts.ALL_LOST_SECONDS:g} s no worker could be started in place of those "
                "that were lost with their nodes; resume the sweep when the cluster is whole again"
            )
        if not self._nodes_due():
            return []
        self._nodes_checked = now
        events: list[Event] = []
        lost_slots = self._pool.find_lost()
        for key in [key for key, slots in self._slots.items() if lost_slots.intersection(slots)]:
            attempt = self._attempts[key]
            killed = attempt.gang.kill("preempted", "the node of its worker is gone")
            events += self._release_ended(attempt, killed)
        return events


def _ready(refs: list[Any], timeout: float) -> list[Any]:
    """Wait for at least one of the references; returns all that are ready."""
    if not refs:
        time.sleep(timeout)
        return []
    ray.wait(refs, num_returns=1, timeout=timeout)
    ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
    return list(ready)
