"""A pool of Ray workers, one for each slot, on room that comes and goes."""

import itertools
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import ray

from automl.core import Resources
from automl.dispatch._slot_health import SlotHealth
from automl.dispatch.base import GangShape
from automl.errors import AutomlError, UsageError
from workers.runtime.actor import CONCURRENCY_GROUPS, Actor

from . import timeouts
from .attempt import RayWorker
from .reservation import Reservation, alive_nodes, choose, node_kinds, reservation_rows

MAX_FAILED_STARTS: Final = 3  # of the worker of one slot, in a row


class WorkerPool:
    """The workers of a sweep, each with a slot. `PoolSize` says how many there are.

    A worker that dies is replaced on the same room; its slot is free once the new one runs. If the
    room is lost with its node, the slot is gone.

    Args:
        sweep: name of the sweep, for the dashboard.
        resources: of each worker.
        objective: the user's, pickled; None if a workload is run.
        workload: name of the workload; None if an objective is run.

    Attributes:
        workers: the actor of each slot.
        reservations: the room of the slots.
        free: slots without an attempt whose worker runs, or is being started for the first time.
        vacant: slots that need a new worker, see `replace_lost`.
        health: of the GPUs; its slots out of use are neither free nor vacant.
        starting: the objects that Ray has to wait for; give each to `worker_started` when ready.
    """

    def __init__(
        self, sweep: str, resources: Resources, objective: bytes | None, workload: str | None
    ) -> None:
        self._sweep = sweep
        self._resources = resources
        self._workload = workload
        self._objective = ray.put(objective)
        self.workers: dict[int, Any] = {}
        self.reservations: list[Reservation] = []
        self.starting: dict[Any, tuple[int, Any]] = {}
        self.free: set[int] = set()
        self.vacant: set[int] = set()
        self._new: set[int] = set()  # slots whose room is not granted yet
        self._places: dict[int, tuple[Reservation, int]] = {}
        self._start_times: dict[int, float] = {}  # of slots whose worker has not started yet
        self._failures: Counter[int] = Counter()
        self._kinds: dict[str, str] = {}  # of nodes
        self.health = SlotHealth(lambda: self.workers)
        self._generation = 0
        self._looked = 0.0

    # ------------------------------------------------------------------ room

    def request(self, shape: GangShape) -> Reservation:
        """Ask for room for the workers of a gang; they start when it is granted."""
        reservation = Reservation(shape, self._resources)
        self.reservations.append(reservation)
        numbers = (number for number in itertools.count() if number not in self.workers)
        reservation.slots = list(itertools.islice(numbers, shape.ranks))
        for place, slot in enumerate(reservation.slots):
            self._places[slot] = (reservation, place)
            self._new.add(slot)
            self.workers[slot] = self._start_worker(slot)
        return reservation

    def drop(self, reservation: Reservation) -> None:
        """End the workers of a reservation and give its room back."""
        self.reservations.remove(reservation)
        for slot in reservation.slots:
            ray.kill(self.workers.pop(slot), no_restart=True)
            del self._places[slot]
            self._start_times.pop(slot, None)
            self._failures.pop(slot, None)
            self.health.forget(slot)
            for slots in (self.free, self.vacant, self._new):
                slots.discard(slot)
        reservation.remove()

    def look(self, *, at_once: bool = False) -> None:
        """Free the slots whose room has been granted since; call it often."""
        now = time.monotonic()
        if not self._new or (not at_once and now - self._looked < timeouts.GRANT_POLL_SECONDS):
            return
        self._looked = now
        rows = reservation_rows()
        for reservation in self.reservations:
            if not reservation.granted and reservation.update(rows.get(reservation.id, {})):
                self.free |= self._new.intersection(reservation.slots)
                self._new -= set(reservation.slots)

    def placed(self, slots: Iterable[int] | None = None) -> dict[int, str]:
        """The node of each slot that has room and can be used; of these slots or of all."""
        return {
            slot: node
            for slot in (self.workers if slots is None else slots)
            if slot not in self.health.quarantined
            if (node := self._node(slot)) and not self._places[slot][0].draining
        }

    def _node(self, slot: int) -> str:
        reservation, place = self._places[slot]
        return reservation.nodes[place]

    # ------------------------------------------------------------------ attempts

    def fits(self, shape: GangShape) -> bool:
        """Whether the free slots can hold a gang."""
        return choose(self.placed(self.free), shape) is not None

    def acquire(self, shape: GangShape) -> list[int]:
        """Take free slots for a gang, by rank; they are no longer free.

        Raises:
            AutomlError: there are too few.
        """
        slots = choose(self.placed(self.free), shape)
        if slots is None:
            raise AutomlError(
                f"the attempt needs {shape.ranks} free slots, {shape.together} together, "
                f"there are {len(self.free)}"
            )
        self.free -= set(slots)
        return slots

    def worker(self, slot: int) -> RayWorker:
        """The worker of a slot."""
        node = self._node(slot)
        if node not in self._kinds:
            self._kinds = node_kinds()
        return RayWorker(self.workers[slot], node, self._kinds.get(node, ""))

    def release(
        self, slots: list[int], lost: set[int], gpu_problems: Mapping[int, str] | None = None
    ) -> None:
        """Free slots again.

        Args:
            slots: of an attempt.
            lost: those whose worker is dead.
            gpu_problems: of those whose GPU could not be used.
        """
        for slot in slots:
            if self.health.attempt_ended(slot, (gpu_problems or {}).get(slot, "")):
                ray.kill(self.workers[slot], no_restart=True)
            elif slot in lost:
                self.vacant.add(slot)
            elif not self._places[slot][0].draining:
                self.free.add(slot)

    def replace_lost(self) -> None:
        """Start a new worker for each vacant slot whose room is not lost too; asks the head."""
        if self.vacant:
            self.find_draining()
        while self.vacant:
            slot = self.vacant.pop()
            self.free.discard(slot)
            if not self._places[slot][0].draining:
                self._generation += 1
                self.workers[slot] = self._start_worker(slot)

    # ------------------------------------------------------------------ workers and nodes

    def worker_started(self, ref: Any, busy: set[int]) -> None:
        """A worker has started, or failed to start.

        Args:
            ref: one of `starting`.
            busy: slots that run an attempt.

        Raises:
            UsageError: workers cannot load the objective or workload.
            AutomlError: workers cannot be started.
        """
        slot, actor = self.starting.pop(ref)
        if self.workers.get(slot) is not actor:
            return  # it was killed before it was ready, and another was started
        del self._start_times[slot]
        try:
            broken: str = ray.get(ref)
        except ray.exceptions.RayError as error:
            if slot not in busy:  # else the attempt reports the failure
                self._start_failed(slot, error)
            return
        if broken:
            raise UsageError(broken)
        self._failures.pop(slot, None)
        if slot in self._new:
            self.look(at_once=True)
        if slot in busy:
            return
        self.free.discard(slot)
        if slot not in self._new:  # else it is free once its room is known
            self.free.add(slot)

    def find_draining(self) -> set[int]:
        """The slots on nodes that are lost or about to be taken away; asks the head.

        No attempt begins on them from now on.
        """
        alive = alive_nodes()
        for reservation in self.reservations:
            if reservation.granted and not alive.issuperset(reservation.nodes):
                reservation.draining = True
                self.free -= set(reservation.slots)
        return {slot for slot, (reservation, _) in self._places.items() if reservation.draining}

    def find_stuck(self) -> set[int]:
        """Slots whose worker has not started for long because their room is gone."""
        latest = time.monotonic() - timeouts.WORKER_START_SECONDS
        late = {slot for slot, begun in self._start_times.items() if begun <= latest}
        # With room for them, workers are only slow.
        return {slot for slot in late - self._new if self._places[slot][0].is_pending()}

    @property
    def waits_for(self) -> str:
        """The workers that have not started for long, in words; "" if there are none."""
        now = time.monotonic()
        seconds = {slot: now - begun for slot, begun in self._start_times.items()}
        slow = sorted(slot for slot, s in seconds.items() if s > timeouts.SLOW_START_SECONDS)
        if not slow:
            return ""
        some = ", ".join(map(str, slow[:5])) + (", ..." if len(slow) > 5 else "")
        longest = max(seconds[slot] for slot in slow)
        what = "room on the cluster for" if self._new.issuperset(slow) else "the start of"
        return f"waits for {what} worker {some}, {longest:.0f} s so far"

    def others(self) -> str:
        """The sweeps that have workers on the cluster, in words; "" if there are none."""
        named = ray.util.list_named_actors(all_namespaces=True)
        sweeps = {str(one["name"]).partition(" worker ")[0] for one in named} - {self._sweep}
        return f"; it has workers of {', '.join(sorted(sweeps)[:3])}" if sweeps else ""

    def close(self) -> None:
        """End the workers."""
        for reservation in list(self.reservations):
            self.drop(reservation)

    def _start_failed(self, slot: int, error: Exception) -> None:
        if slot in self.find_draining():
            return  # its node was lost while it started
        self._failures[slot] += 1
        if slot in self.free or self._failures[slot] >= MAX_FAILED_STARTS:
            reason = " ".join(str(error).split())[:500]
            raise AutomlError(
                "a Ray worker could not be started; is this project installed on every node? "
                f"{reason}"
            ) from error
        self.vacant.add(slot)

    def _start_worker(self, slot: int) -> Any:
        reservation, place = self._places[slot]
        kind = ray.remote(concurrency_groups=CONCURRENCY_GROUPS)(Actor)
        again = f".{self._generation}" if self._generation else ""
        name = f"{self._sweep} worker {slot}{again}"
        actor = kind.options(
            name=f"{name} {uuid.uuid4().hex[:6]}",  # unique on a cluster
            num_cpus=self._resources.cpus,
            num_gpus=self._resources.gpus,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=reservation.strategy(place),
        ).remote(
            self._objective,
            self._workload,
            max(1, self._resources.cpus),
            sys.path,
            name,
            self._resources.gpus,
        )
        self.starting[actor.ready.options(enable_task_events=False).remote()] = (slot, actor)
        self._start_times[slot] = time.monotonic()
        return actor
