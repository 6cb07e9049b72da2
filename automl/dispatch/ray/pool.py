"""A pool of Ray workers, one for each slot: more while trials wait, fewer if they are idle."""

import itertools
import sys
import time
import uuid
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, Final

import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from automl.core import Resources, WorkerRange
from automl.dispatch.base import GangShape
from automl.errors import AutomlError, UsageError
from workers.runtime.actor import CONCURRENCY_GROUPS, Actor

from .nodes import choose, needs

MAX_FAILED_STARTS: Final = 3  # of the worker of one slot, in a row
PLACEMENT_SECONDS: Final = 60.0  # for Ray to reserve all slots, if their number is fixed
REGROUP_SECONDS: Final = 10.0  # that a gang waits before idle slots are reserved anew for it
IDLE_SECONDS: Final = 30.0  # after that an elastic sweep gives a slot back that no trial needs
NODE_POLL_SECONDS: Final = 5.0  # between two checks of the nodes of idle workers


class Room:
    """A placement group with the slots of one gang, which Ray grants as a whole or not at all.

    While it is pending, Ray's autoscaler sees it as demand. If its node is lost, Ray looks for
    room for it elsewhere.

    Args:
        shape: ranks that must be together get one bundle, which is always on one node.
        resources: of each worker.
        slots: the numbers of its slots.
    """

    def __init__(self, shape: GangShape, resources: Resources, slots: Sequence[int]) -> None:
        self.shape, self.slots = shape, slots
        self.used = time.monotonic()  # when it was last seen busy
        bundle = {key: value * shape.together for key, value in needs(resources).items()}
        # Of the nodes with room, Ray takes those that are the most used: few nodes per gang.
        self.group = placement_group([bundle] * (shape.ranks // shape.together), strategy="PACK")


class WorkerPool:
    """The workers of a sweep. A worker that dies is replaced on the same room.

    Args:
        sweep: name of the sweep, for the dashboard.
        resources: of each worker.
        objective: the user's, pickled; None if a workload is run.
        workload: name of the workload; None if an objective is run.
        workers: how many there are; of a range, the least are asked for at once.

    Raises:
        UsageError: their number is fixed, and the cluster has no room for them.

    Attributes:
        workers: how many there may be; `adjust` follows.
        waiting: the shapes of the trials that could begin if there were slots, the next one first.
        more: how many trials may follow them.
        actors: of each slot.
        nodes: the node of each slot whose worker runs.
        free: the slots without an attempt whose worker runs.
        vacant: slots that need a new worker, see `replace_lost`.
        num_replaced: how many workers were replaced.
        starting: the objects that Ray has to wait for; give each to `worker_started` when ready.
    """

    def __init__(
        self,
        sweep: str,
        resources: Resources,
        objective: bytes | None,
        workload: str | None,
        workers: WorkerRange,
    ) -> None:
        self.workers = workers
        self.waiting: Sequence[GangShape] = ()
        self.more = 0
        self.actors: dict[int, Any] = {}
        self.nodes: dict[int, str] = {}
        self.free: set[int] = set()
        self.vacant: set[int] = set()
        self.num_replaced = 0
        self.starting: dict[Any, tuple[int, Any]] = {}
        self._sweep, self._resources, self._workload = sweep, resources, workload
        self._objective = ray.put(objective)
        self._rooms: list[Room] = []
        # How many nodes were lost when a worker was asked for, by slot, until it has started.
        self._begun: dict[int, int] = {}
        self._failures: Counter[int] = Counter()  # to start, in a row
        self._looked = time.monotonic()
        self._unfit_since: float | None = None  # when the next gang began to lack nodes
        for _ in range(workers.min):
            self._request(GangShape(1))
        if not workers.elastic:
            self._wait_for_room()

    # ------------------------------------------------------------------ attempts

    def fits(self, shape: GangShape) -> bool:
        """Whether the free slots can hold a gang."""
        return choose({slot: self.nodes[slot] for slot in self.free}, shape) is not None

    def acquire(self, shape: GangShape) -> list[int]:
        """Take free slots for a gang that fits, by rank; they are no longer free."""
        slots = choose({slot: self.nodes[slot] for slot in self.free}, shape)
        assert slots is not None
        self.free -= set(slots)
        return slots

    # ------------------------------------------------------------------ workers

    def worker_started(self, ref: Any) -> None:
        """A worker has started, or failed to start.

        Args:
            ref: one of `starting`.

        Raises:
            UsageError: workers cannot load the objective or workload.
            AutomlError: workers cannot be started.
        """
        slot, actor = self.starting.pop(ref)
        if self.actors.get(slot) is not actor:
            return  # it was given back before it was ready
        try:
            broken, node = ray.get(ref)
        except ray.exceptions.RayError as error:
            # A worker that its node took with it says nothing of those that follow.
            gone = isinstance(error, ray.exceptions.ActorUnavailableError)
            self._failures[slot] += not gone and _num_lost() == self._begun[slot]
            if self._failures[slot] >= MAX_FAILED_STARTS:
                raise AutomlError(
                    "a Ray worker could not be started; is this project installed on every node? "
                    f"{' '.join(str(error).split())[:500]}"
                ) from error
            self.vacant.add(slot)
            return
        if broken:
            raise UsageError(broken)
        for counts in (self._failures, self._begun):
            counts.pop(slot, None)
        self.nodes[slot] = node
        self.free.add(slot)

    def replace_lost(self) -> None:
        """Start a new worker for each vacant slot, and for idle ones whose node is lost."""
        if time.monotonic() - self._looked > NODE_POLL_SECONDS:
            self._looked = time.monotonic()
            alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
            self.vacant |= {slot for slot in self.free if self.nodes[slot] not in alive}
        while self.vacant:
            slot = self.vacant.pop()
            self.free.discard(slot)
            self.nodes.pop(slot, None)
            self.num_replaced += 1
            room = next(room for room in self._rooms if slot in room.slots)
            self._start_worker(room, slot)

    def close(self) -> None:
        """End the workers."""
        for room in self._rooms[:]:
            self._drop(room)

    # ------------------------------------------------------------------ how many

    def adjust(self, busy: Collection[int]) -> None:
        """Ask for room that trials need, give back what is too much or idle; call it often.

        Args:
            busy: slots that run an attempt, which are never taken away.
        """
        now = time.monotonic()
        idle = [room for room in self._rooms if set(busy).isdisjoint(room.slots)]
        idle.sort(key=lambda room: not self.nodes.keys().isdisjoint(room.slots))  # pending first
        for room in self._rooms:
            if room not in idle:
                room.used = now
        wanted = len(busy) + sum(shape.ranks for shape in self.waiting) + self.more
        needed = min(max(wanted, self.workers.min), self.workers.max)
        for room in idle[:]:
            late = self.workers.elastic and now - room.used > IDLE_SECONDS
            unneeded = late and len(self.actors) - len(room.slots) >= needed
            if unneeded or len(self.actors) > self.workers.max:
                idle.remove(room)
                self._drop(room)
        self._gather(busy, idle)
        unit = next(iter(self.waiting), GangShape(1))
        while (missing := needed - len(self.actors)) > 0:
            self._request(unit if unit.ranks <= missing else GangShape(1))

    def _gather(self, busy: Collection[int], idle: list[Room]) -> None:
        """Ask for room for the whole next gang if the slots that there are can never hold it.

        A gang that gets its slots one by one could wait for ever for one that waits for it, and
        ranks that must be together could be on several nodes. Before idle slots are given back for
        it, all attempts end: others may use the slots meanwhile.
        """
        shape, now = next(iter(self.waiting), None), time.monotonic()
        starts = bool(self._begun) and not self.workers.elastic
        if shape is None or shape.ranks == 1 or starts or choose(self.nodes, shape) is not None:
            self._unfit_since = None
            return
        self._unfit_since = self._unfit_since or now
        pending = (room for room in self._rooms if self.nodes.keys().isdisjoint(room.slots))
        if any(room.shape == shape for room in pending):
            return
        surplus = len(self.actors) + shape.ranks - self.workers.max
        late = not busy and now - self._unfit_since > REGROUP_SECONDS
        if surplus > 0 and (not late or sum(len(room.slots) for room in idle) < surplus):
            return
        while len(self.actors) + shape.ranks > self.workers.max:
            self._drop(idle.pop(0))
        self._request(shape)

    # ------------------------------------------------------------------ room

    def _request(self, shape: GangShape) -> None:
        """Ask for room for the workers of a gang; they start when it is granted."""
        numbers = (number for number in itertools.count() if number not in self.actors)
        room = Room(shape, self._resources, list(itertools.islice(numbers, shape.ranks)))
        self._rooms.append(room)
        for slot in room.slots:
            self._start_worker(room, slot)

    def _drop(self, room: Room) -> None:
        """End the workers of a room and give it back."""
        self._rooms.remove(room)
        for slot in room.slots:
            ray.kill(self.actors.pop(slot), no_restart=True)
            for numbers in (self.nodes, self._begun, self._failures):
                numbers.pop(slot, None)
            self.free.discard(slot)
            self.vacant.discard(slot)
        remove_placement_group(room.group)

    def _start_worker(self, room: Room, slot: int) -> None:
        kind = ray.remote(concurrency_groups=CONCURRENCY_GROUPS)(Actor)
        bundle = room.slots.index(slot) // room.shape.together
        name = f"{self._sweep} worker {slot}"
        self.actors[slot] = actor = kind.options(
            name=f"{name} {uuid.uuid4().hex[:6]}",  # unique on a cluster
            num_cpus=self._resources.cpus,
            num_gpus=self._resources.gpus,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                room.group, placement_group_bundle_index=bundle
            ),
        ).remote(
            self._objective,
            self._workload,
            max(1, self._resources.cpus),
            sys.path,
            name,
            self._resources.gpus,
        )
        self.starting[actor.ready.options(enable_task_events=False).remote()] = (slot, actor)
        self._begun[slot] = _num_lost()

    def _wait_for_room(self) -> None:
        begun, wanted = time.monotonic(), len(self._rooms)
        while (found := self._num_granted()) < wanted:
            if time.monotonic() - begun > PLACEMENT_SECONDS:
                self.close()
                raise UsageError(
                    f"Ray has no room for {wanted} workers of {needs(self._resources)}, only for "
                    f"{found}. Ask for fewer workers or for `{{min: 1, max: {wanted}}}`, or wait "
                    "until other programs are done"
                )
            time.sleep(0.01)

    def _num_granted(self) -> int:
        rows: dict[str, dict[str, Any]] = placement_group_table()
        return sum(rows[room.group.id.hex()].get("state") == "CREATED" for room in self._rooms)


def _num_lost() -> int:
    """How many nodes the cluster has lost."""
    return sum(not node["Alive"] for node in ray.nodes())
