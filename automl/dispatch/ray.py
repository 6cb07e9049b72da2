"""Trials on Ray: a pool of warm workers, one a slot, on this machine or on a cluster."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable
from typing import Any, ClassVar, Final

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from automl.errors import AutomlError, UsageError
from automl.spec import Resources
from workers.actor import CONCURRENCY_GROUPS, Worker
from workers.gang import Gang, Seat
from workers.protocol import Assignment, Event, Halt

from .base import Dispatcher
from .pickling import pickled
from .session import Session

PLACEMENT_SECONDS: Final = 60.0


class RayDispatcher(Dispatcher):
    """Runs attempts on a pool of warm actors that one placement group reserves, all of them or none.

    A worker that dies is replaced, its trial is not run again: that is the controller's decision. A trial of n ranks
    takes n workers, of one node where that is possible.

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
        self._begun = time.monotonic()
        blob = pickled(objective) if objective is not None else None
        self._sweep, self._resources, self._workload = sweep, resources, workload
        self._gangs: dict[tuple[int, int], Gang] = {}
        self._taken: dict[tuple[int, int], list[int]] = {}
        self._news: list[Event] = []  # outcomes of attempts that were killed, for the next poll
        self._starting: dict[Any, int] = {}
        self._generation = 0
        self._session = Session(address, num_slots, resources)
        try:
            self.num_slots = self._session.num_slots
            self.dashboard = self._session.dashboard
            self._objective = ray.put(blob)
            self._group = self._reserve()
            self._seats = [self._hire(slot, 0) for slot in range(self.num_slots)]
        except BaseException:
            self._session.close()
            raise
        self._free = set(range(self.num_slots))

    @property
    def free_slots(self) -> int:  # type: ignore[override]
        """How many workers have nothing to do."""
        return len(self._free)

    def submit(self, assignment: Assignment) -> None:
        """Begin an attempt on free workers."""
        slots = self._placed(self._choose(assignment.num_ranks))
        self._free -= set(slots)
        key = (assignment.trial, assignment.attempt)
        self._taken[key] = slots
        self._gangs[key] = Gang(assignment, [self._seats[slot] for slot in slots])

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
        """Wait for mail of the workers."""
        events, self._news = self._news, []
        owners: dict[Any, Gang | None] = {ref: gang for gang in self._gangs.values() for ref in gang.refs}
        owners |= dict.fromkeys(self._starting)
        for ref in _ready(list(owners), 0.0 if events else timeout):
            gang = owners[ref]
            if gang is None:
                self._on_started(ref)
            elif ref in gang.refs:  # it may have ended by what came before
                events += self._tidy(gang, gang.receive(ref))
        for gang in list(self._gangs.values()):
            events += self._tidy(gang, gang.watch())
        for event in events:
            handle(event)
        return len(events)

    def now(self) -> float:
        """Seconds since the dispatcher began to be made."""
        return time.monotonic() - self._begun

    def close(self) -> None:
        """End the workers, and Ray where it was started here."""
        try:
            for seat in self._seats:
                ray.kill(seat.actor, no_restart=True)
            remove_placement_group(self._group)
        finally:
            self._session.close()

    def _tidy(self, gang: Gang, events: list[Event]) -> list[Event]:
        if gang.outcome is not None:
            self._clear(gang)
        return events

    def _clear(self, gang: Gang) -> None:
        """Give the slots of an attempt that has ended back, with new workers where the old ones are gone."""
        key = (gang.assignment.trial, gang.assignment.attempt)
        if self._gangs.pop(key, None) is None:
            return
        slots = self._taken.pop(key)
        self._free |= set(slots)
        for rank in gang.spent:
            self._generation += 1
            self._seats[slots[rank]] = self._hire(slots[rank], self._generation)

    def _choose(self, count: int) -> list[int]:
        """Free slots, of one node where it has enough of them."""
        nodes: dict[str, list[int]] = {}
        for slot in sorted(self._free):
            nodes.setdefault(self._seats[slot].node, []).append(slot)
        fitting = [slots for slots in nodes.values() if len(slots) >= count]
        if fitting:
            return min(fitting, key=len)[:count]
        if len(self._free) < count:
            raise AutomlError(f"the attempt needs {count} free slots, there are {len(self._free)}")
        return sorted(self._free)[:count]

    def _placed(self, slots: list[int]) -> list[int]:
        """These slots, those whose node is known first: the ranks meet at the first, which should answer at once.

        Workers that are still starting have not said where they are, which is no question where there is one node.
        """
        if len(slots) > 1 and not all(self._seats[slot].node for slot in slots):
            nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
            for slot in slots:
                if len(nodes) == 1:
                    self._seats[slot] = Seat(self._seats[slot].actor, nodes[0])
        return sorted(slots, key=lambda slot: not self._seats[slot].node)

    def _reserve(self) -> Any:
        bundle = {"CPU": self._resources.cpus, "GPU": self._resources.gpus}
        needed = {key: value for key, value in bundle.items() if value}
        group = placement_group([needed] * self.num_slots, strategy="PACK")
        if not group.wait(PLACEMENT_SECONDS):
            free = {key: value for key, value in ray.available_resources().items() if key in ("CPU", "GPU")}
            remove_placement_group(group)
            raise UsageError(
                f"Ray has no room for {self.num_slots} workers of {needed}; free now: {free}. Ask for fewer workers, "
                "or wait until others are done"
            )
        return group

    def _hire(self, slot: int, generation: int) -> Seat:
        kind = ray.remote(concurrency_groups=CONCURRENCY_GROUPS)(Worker)
        again = f".{generation}" if generation else ""
        name = f"{self._sweep} worker {slot}{again}"
        actor = kind.options(
            name=f"{name} {uuid.uuid4().hex[:6]}",  # names must differ on a cluster
            num_cpus=self._resources.cpus,
            num_gpus=self._resources.gpus,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=slot),
        ).remote(self._objective, self._workload, max(1, self._resources.cpus), sys.path, name)
        self._starting[actor.ready.options(enable_task_events=False).remote()] = slot
        return Seat(actor, "")

    def _on_started(self, ref: Any) -> None:
        slot = self._starting.pop(ref)
        try:
            node, broken = ray.get(ref)
        except ray.exceptions.RayError as error:
            if slot in self._free:
                reason = " ".join(str(error).split())[:500]
                raise AutomlError(
                    f"a Ray worker could not be started; is this project installed on every node? {reason}"
                ) from error
            return  # it died with an attempt, which says so
        if broken:
            raise UsageError(f"the workers cannot load what they are to run: {broken}")
        self._seats[slot] = Seat(self._seats[slot].actor, node)


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
