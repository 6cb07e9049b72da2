"""A pool of warm Ray workers, one for each slot; one placement group reserves all slots or none."""

import sys
import time
import uuid
from collections import Counter
from typing import Any, Final

import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from automl.core import Resources
from automl.errors import AutomlError, UsageError
from workers.runtime.actor import CONCURRENCY_GROUPS, Actor

from . import timeouts
from .attempt import RayWorker

MAX_FAILED_STARTS: Final = 3  # of the worker of one slot, in a row


class WorkerPool:
    """The workers of a sweep. A lost worker is replaced; its slot is free once the new one runs.

    Args:
        sweep: name of the sweep, for the dashboard.
        num_slots: how many workers.
        resources: of each worker.
        objective: the user's, pickled; None if a workload is run.
        workload: name of the workload; None if an objective is run.

    Raises:
        UsageError: Ray has no room for the workers.

    Attributes:
        workers: the worker of each slot.
        free: slots without an attempt whose worker runs, or is being started for the first time.
        vacant: slots that need a new worker, see `replace_lost`.
        starting: the objects that Ray has to wait for; give each to `worker_started` when ready.
    """

    def __init__(
        self,
        sweep: str,
        num_slots: int,
        resources: Resources,
        objective: bytes | None,
        workload: str | None,
    ) -> None:
        self._sweep = sweep
        self._resources = resources
        self._workload = workload
        self._objective = ray.put(objective)
        self.starting: dict[Any, tuple[int, Any]] = {}
        self.vacant: set[int] = set()
        self._start_times: dict[int, float] = {}  # of slots whose worker has not started yet
        self._failures: Counter[int] = Counter()
        self._generation = 0
        self._group = _reserve(num_slots, resources)
        self.workers = [self._start_worker(slot) for slot in range(num_slots)]
        self.free = set(range(num_slots))

    def acquire(self, count: int) -> list[int]:
        """Take free slots, of one node if one has enough; they are no longer free."""
        slots = self._known_nodes_first(self._choose(count))
        self.free -= set(slots)
        return slots

    def release(self, slots: list[int], spent: set[int]) -> None:
        """Free slots again, except `spent` ones, whose worker cannot be used again."""
        self.vacant |= spent
        self.free |= set(slots) - spent

    def replace_lost(self) -> None:
        """Start a new worker for each vacant slot."""
        while self.vacant:
            slot = self.vacant.pop()
            self.free.discard(slot)
            self._generation += 1
            self.workers[slot] = self._start_worker(slot)

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
        if self.workers[slot].actor is not actor:
            return  # it was killed before it was ready, and another was started
        del self._start_times[slot]
        try:
            node, broken = ray.get(ref)
        except ray.exceptions.RayError as error:
            if slot not in busy:  # else the attempt reports the failure
                self._start_failed(slot, error)
            return
        if broken:
            raise UsageError(f"the workers cannot load what they are to run: {broken}")
        self._failures.pop(slot, None)
        self.workers[slot] = RayWorker(actor, node)
        self.free |= {slot} - busy

    def find_lost(self) -> set[int]:
        """Check the nodes. Free slots of lost nodes become vacant.

        Returns:
            Slots whose worker does not start for want of a node.
        """
        alive = _alive_nodes()
        self.vacant |= {slot for slot in self.free if self.workers[slot].node not in {"", *alive}}
        latest = time.monotonic() - timeouts.WORKER_START_SECONDS
        late = {slot for slot, begun in self._start_times.items() if begun <= latest}
        if late and placement_group_table(self._group).get("state") != "CREATED":
            return late
        return set()  # with a node for every slot, workers are only slow

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
        return f"waits for the start of worker {some}, {longest:.0f} s so far"

    def close(self) -> None:
        """End the workers."""
        for worker in self.workers:
            ray.kill(worker.actor, no_restart=True)
        remove_placement_group(self._group)

    def _start_failed(self, slot: int, error: Exception) -> None:
        self._failures[slot] += 1
        if slot in self.free or self._failures[slot] >= MAX_FAILED_STARTS:
            reason = " ".join(str(error).split())[:500]
            raise AutomlError(
                "a Ray worker could not be started; is this project installed on every node? "
                f"{reason}"
            ) from error
        self.vacant.add(slot)

    def _choose(self, count: int) -> list[int]:
        nodes: dict[str, list[int]] = {}
        for slot in sorted(self.free):
            nodes.setdefault(self.workers[slot].node, []).append(slot)
        fitting = [slots for slots in nodes.values() if len(slots) >= count]
        if fitting:
            return min(fitting, key=len)[:count]
        if len(self.free) < count:
            raise AutomlError(f"the attempt needs {count} free slots, there are {len(self.free)}")
        return sorted(self.free)[:count]

    def _known_nodes_first(self, slots: list[int]) -> list[int]:
        """These slots, those with a known node first: the ranks meet at the first slot's worker.

        The node of a worker that is still starting is known only if the cluster has one node.
        """
        if len(slots) > 1 and not all(self.workers[slot].node for slot in slots):
            nodes = _alive_nodes()
            if len(nodes) == 1:
                for slot in slots:
                    self.workers[slot] = RayWorker(self.workers[slot].actor, nodes[0])
        return sorted(slots, key=lambda slot: not self.workers[slot].node)

    def _start_worker(self, slot: int) -> RayWorker:
        kind = ray.remote(concurrency_groups=CONCURRENCY_GROUPS)(Actor)
        again = f".{self._generation}" if self._generation else ""
        name = f"{self._sweep} worker {slot}{again}"
        actor = kind.options(
            name=f"{name} {uuid.uuid4().hex[:6]}",  # unique on a cluster
            num_cpus=self._resources.cpus,
            num_gpus=self._resources.gpus,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                self._group, placement_group_bundle_index=slot
            ),
        ).remote(self._objective, self._workload, max(1, self._resources.cpus), sys.path, name)
        self.starting[actor.ready.options(enable_task_events=False).remote()] = (slot, actor)
        self._start_times[slot] = time.monotonic()
        return RayWorker(actor, "")


def _alive_nodes() -> list[str]:
    return [node["NodeID"] for node in ray.nodes() if node["Alive"]]


def _reserve(num_slots: int, resources: Resources) -> Any:
    bundle = {"CPU": resources.cpus, "GPU": resources.gpus}
    needed = {key: value for key, value in bundle.items() if value}
    group = placement_group([needed] * num_slots, strategy="PACK")
    if not group.wait(timeouts.PLACEMENT_SECONDS):
        free = {
            key: value for key, value in ray.available_resources().items() if key in ("CPU", "GPU")
        }
        remove_placement_group(group)
        raise UsageError(
            f"Ray has no room for {num_slots} workers of {needed}; free now: {free}. Ask for fewer "
            "workers, or wait until other programs are done"
        )
    return group
