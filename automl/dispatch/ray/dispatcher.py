"""Trials on Ray: a pool of warm workers, one a slot, on this machine or on a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar, Final

import ray

from automl.core.spec import Resources
from automl.dispatch._pickling import pickled
from automl.dispatch.base import Dispatcher
from automl.errors import AutomlError
from workers.protocol import Assignment, Event, Halt, lost
from workers.runtime.gang import Gang

from .head import Head
from .pool import Pool
from .session import Session

LOOK_SECONDS: Final = 5.0  # between two looks at the cluster's nodes
LOST_SECONDS: Final = 300.0  # how long a sweep that can run nothing waits for another node


class RayDispatcher(Dispatcher):
    """Runs attempts on a pool of warm actors.

    A worker that dies is replaced, its trial is not run again: that is the controller's decision. A slot whose node is
    gone waits for another node, and the others go on. A trial of n ranks takes n workers, of one node where that is
    possible.

    Args:
        sweep: its name, for the dashboard.
        num_slots: None for as many as Ray has room for.
        resources: what a slot has.
        objective: of the user's own; workload: the name of what is run otherwise.
        address: of a running cluster, "auto" to find it, None to start Ray here.

    Raises:
        UsageError: Ray cannot be reached, has no room, or the objective cannot be sent to another process.
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
        self._begun = self._busy = self._looked = time.monotonic()
        blob = pickled(objective) if objective is not None else None
        self._gangs: dict[tuple[int, int], Gang] = {}
        self._taken: dict[tuple[int, int], list[int]] = {}
        self._news: list[Event] = []  # outcomes of attempts that were killed, for the next poll
        self._session = Session(address, num_slots, resources)
        try:
            self.num_slots = self._session.num_slots
            self.dashboard = self._session.dashboard
            self._head = Head(self._session.head)
            self._pool = Pool(sweep, self.num_slots, resources, blob, workload)
        except BaseException:
            self._session.close()
            raise

    @property
    def free_slots(self) -> int:  # type: ignore[override]
        """How many workers have nothing to do."""
        return len(self._pool.free)

    def submit(self, assignment: Assignment) -> None:
        """Begin an attempt on free workers."""
        slots = self._pool.take(assignment.num_ranks)
        key = (assignment.trial, assignment.attempt)
        try:
            self._gangs[key] = Gang(assignment, [self._pool.seats[slot] for slot in slots])
        except (
            ray.exceptions.RayError
        ) as error:  # the first of several ranks is gone and cannot say where to meet
            self._news.append(
                lost(assignment, f"its workers are gone: {' '.join(str(error).split())[:300]}")
            )
            self._pool.give(slots, set(slots))
        else:
            self._taken[key] = slots

    def halt(self, trial: int, attempt: int, how: Halt) -> None:
        """Ask a running attempt to end."""
        if gang := self._gangs.get((trial, attempt)):
            gang.halt(how)

    def kill(self, trial: int, attempt: int, failure: str, message: str) -> None:
        """End a running attempt by force."""
        if gang := self._gangs.get((trial, attempt)):
            self._news += gang.kill(failure, message)
            self._clear(gang)

    def poll(self, handle: Callable[[Event], None], timeout: float) -> int:
        """Wait for mail of the workers.

        Raises:
            AutomlError: the cluster's head is lost, or so are all nodes, and no others come.
        """
        self._head.ask()
        events, self._news = self._news, []
        owners: dict[Any, Gang | None] = {
            ref: gang for gang in self._gangs.values() for ref in gang.refs
        }
        owners |= dict.fromkeys(self._pool.starting)
        for ref in _ready(list(owners), 0.0 if events else timeout):
            gang = owners[ref]
            if gang is None:
                self._pool.begun(ref, {slot for slots in self._taken.values() for slot in slots})
            elif ref in gang.refs:  # it may have ended by what came before
                events += self._tidy(gang, gang.receive(ref))
        for gang in list(self._gangs.values()):
            events += self._tidy(gang, gang.watch())
        if self._pool.vacant or time.monotonic() - self._looked >= LOOK_SECONDS:
            events += self._look()
        for event in events:
            handle(event)
        return len(events)

    def now(self) -> float:
        """Seconds since the dispatcher began to be made."""
        return time.monotonic() - self._begun

    def close(self) -> None:
        """End the workers, and Ray where it was started here."""
        try:
            if self._head.answers():
                self._pool.close()
        finally:
            self._session.close()

    def _tidy(self, gang: Gang, events: list[Event]) -> list[Event]:
        if gang.outcome is not None:
            self._clear(gang)
        return events

    def _clear(self, gang: Gang) -> None:
        """Give the slots of an attempt that has ended back."""
        key = (gang.assignment.trial, gang.assignment.attempt)
        if self._gangs.pop(key, None) is not None:
            slots = self._taken.pop(key)
            self._pool.give(slots, {slots[rank] for rank in gang.spent})

    def _look(self) -> list[Event]:
        """Replace what is lost; what was to run on nodes that are gone is given back, and others take it up.

        Raises:
            AutomlError: nothing runs for want of slots, and no node came in their place.
        """
        if not self._head.answers():
            return []
        self._pool.rehire()
        now = time.monotonic()
        if self._gangs or self._pool.free:
            self._busy = now
        elif now - self._busy > LOST_SECONDS:
            raise AutomlError(
                f"for {LOST_SECONDS:g} s no worker could be started in place of those that were lost with their nodes; "
                "resume the sweep when the cluster is whole again"
            )
        if now - self._looked < LOOK_SECONDS:
            return []
        self._looked, events = now, list[Event]()
        late = self._pool.miss()
        for key in [key for key, slots in self._taken.items() if late.intersection(slots)]:
            gang = self._gangs[key]
            events += self._tidy(gang, gang.kill("preempted", "the node of its worker is gone"))
        return events


def _ready(refs: list[Any], timeout: float) -> list[Any]:
    """Those of the references that have come, after waiting for at least one."""
    if not refs:
        time.sleep(timeout)
        return []
    first, rest = ray.wait(refs, num_returns=1, timeout=timeout)
    if first and rest:
        more, _ = ray.wait(rest, num_returns=len(rest), timeout=0)
        return [*first, *more]
    return list(first)
