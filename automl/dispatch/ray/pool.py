"""Warm Ray workers, one a slot, that one placement group reserves: all of them or none."""

from __future__ import annotations

import sys
import time
import uuid
from collections import Counter
from typing import Any, Final

import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from automl.core.spec import Resources
from automl.errors import AutomlError, UsageError
from workers.runtime.actor import CONCURRENCY_GROUPS, Worker
from workers.runtime.gang import Seat

PLACEMENT_SECONDS: Final = 60.0
START_SECONDS: Final = 60.0  # after which a worker that has not begun may have lost its node
MOST_STARTS: Final = 3  # of a slot's worker that fail, in a row


class Pool:
    """The workers. One that is lost is replaced, and its slot is free again once the new one has begun.

    Args:
        sweep: its name, for the dashboard.
        num_slots: how many workers.
        resources: what each has.
        objective: pickled, in Ray's store, or None; workload: the name of what is run otherwise.

    Raises:
        UsageError: Ray has no room for them.

    Attributes:
        seats: the worker of each slot.
        free: slots that have nothing to do and whose worker is there, or is being started for the first time.
        vacant: slots that need another worker, see `rehire`.
        starting: what Ray is to wait for; each goes to `begun` when it is there.
    """

    def __init__(
        self,
        sweep: str,
        num_slots: int,
        resources: Resources,
        objective: bytes | None,
        workload: str | None,
    ) -> None:
        self._sweep, self._resources, self._workload = sweep, resources, workload
        self._objective = ray.put(objective)
        self.starting: dict[Any, tuple[int, Any]] = {}
        self.vacant: set[int] = set()
        self._since: dict[int, float] = {}  # when a slot's worker was asked for that has not begun
        self._failures: Counter[int] = Counter()
        self._generation = 0
        self._group = _reserve(num_slots, resources)
        self.seats = [self._hire(slot) for slot in range(num_slots)]
        self.free = set(range(num_slots))

    def take(self, count: int) -> list[int]:
        """Free slots, of one node where it has enough of them; they are free no more."""
        slots = self._placed(self._choose(count))
        self.free -= set(slots)
        return slots

    def give(self, slots: list[int], spent: set[int]) -> None:
        """Slots that were taken are free again, but for those whose worker cannot be used again."""
        self.vacant |= spent
        self.free |= set(slots) - spent

    def rehire(self) -> None:
        """Have a worker started for each slot that has lost its own."""
        while self.vacant:
            slot = self.vacant.pop()
            self.free.discard(slot)
            self._generation += 1
            self.seats[slot] = self._hire(slot)

    def begun(self, ref: Any, taken: set[int]) -> None:
        """A worker has begun, or could not.

        Args:
            taken: slots that run an attempt.

        Raises:
            UsageError: no worker can load what it is to run.
            AutomlError: workers cannot be started.
        """
        slot, actor = self.starting.pop(ref)
        if self.seats[slot].actor is not actor:
            return  # it was killed before it was ready, and another one was hired
        del self._since[slot]
        try:
            node, broken = ray.get(ref)
        except ray.exceptions.RayError as error:
            if slot not in taken:  # else the attempt says so
                self._not_begun(slot, error)
            return
        if broken:
            raise UsageError(f"the workers cannot load what they are to run: {broken}")
        self._failures.pop(slot, None)
        self.seats[slot] = Seat(actor, node)
        self.free |= {slot} - taken

    def miss(self) -> set[int]:
        """Look which nodes are gone: their free slots become vacant; slots whose worker has no place are returned."""
        alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
        self.vacant |= {slot for slot in self.free if self.seats[slot].node not in {"", *alive}}
        late = {
            slot for slot, since in self._since.items() if time.monotonic() - since >= START_SECONDS
        }
        # Where there is a place for all, they are only slow.
        return (
            late if late and placement_group_table(self._group).get("state") != "CREATED" else set()
        )

    def close(self) -> None:
        """End the workers."""
        for seat in self.seats:
            ray.kill(seat.actor, no_restart=True)
        remove_placement_group(self._group)

    def _not_begun(self, slot: int, error: Exception) -> None:
        self._failures[slot] += 1
        if slot in self.free or self._failures[slot] >= MOST_STARTS:
            reason = " ".join(str(error).split())[:500]
            raise AutomlError(
                f"a Ray worker could not be started; is this project installed on every node? {reason}"
            ) from error
        self.vacant.add(slot)

    def _choose(self, count: int) -> list[int]:
        nodes: dict[str, list[int]] = {}
        for slot in sorted(self.free):
            nodes.setdefault(self.seats[slot].node, []).append(slot)
        fitting = [slots for slots in nodes.values() if len(slots) >= count]
        if fitting:
            return min(fitting, key=len)[:count]
        if len(self.free) < count:
            raise AutomlError(f"the attempt needs {count} free slots, there are {len(self.free)}")
        return sorted(self.free)[:count]

    def _placed(self, slots: list[int]) -> list[int]:
        """These slots, those whose node is known first: the ranks meet at the first, which should answer at once.

        Workers that are still starting have not said where they are, which is no question where there is one node.
        """
        if len(slots) > 1 and not all(self.seats[slot].node for slot in slots):
            nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
            for slot in slots:
                if len(nodes) == 1:
                    self.seats[slot] = Seat(self.seats[slot].actor, nodes[0])
        return sorted(slots, key=lambda slot: not self.seats[slot].node)

    def _hire(self, slot: int) -> Seat:
        kind = ray.remote(concurrency_groups=CONCURRENCY_GROUPS)(Worker)
        again = f".{self._generation}" if self._generation else ""
        name = f"{self._sweep} worker {slot}{again}"
        actor = kind.options(
            name=f"{name} {uuid.uuid4().hex[:6]}",  # names must differ on a cluster
            num_cpus=self._resources.cpus,
            num_gpus=self._resources.gpus,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                self._group, placement_group_bundle_index=slot
            ),
        ).remote(self._objective, self._workload, max(1, self._resources.cpus), sys.path, name)
        self.starting[actor.ready.options(enable_task_events=False).remote()] = (slot, actor)
        self._since[slot] = time.monotonic()
        return Seat(actor, "")


def _reserve(num_slots: int, resources: Resources) -> Any:
    bundle = {"CPU": resources.cpus, "GPU": resources.gpus}
    needed = {key: value for key, value in bundle.items() if value}
    group = placement_group([needed] * num_slots, strategy="PACK")
    if not group.wait(PLACEMENT_SECONDS):
        free = {
            key: value for key, value in ray.available_resources().items() if key in ("CPU", "GPU")
        }
        remove_placement_group(group)
        raise UsageError(
            f"Ray has no room for {num_slots} workers of {needed}; free now: {free}. Ask for fewer workers, "
            "or wait until others are done"
        )
    return group
