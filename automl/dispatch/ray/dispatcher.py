"""Runs trials on Ray: a pool of workers, one for each slot, here or on a cluster."""

import io
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import ray

from automl.core import Resources, WorkerRange, read_workers
from automl.dispatch.base import GangShape
from automl.dispatch.local import GangDispatcher, Message
from automl.errors import AutomlError
from workers.protocol import Assignment, Cause, Event, Outcome, StopRequest, lost
from workers.runtime.parent import TAKE_SECONDS, News, pickle_objective
from workers.runtime.processes import Gang

from .pool import WorkerPool
from .session import RaySession

ALL_LOST_SECONDS: Final = 300.0  # for a new node, if no worker of the sweep is left
SILENT_SECONDS: Final = 60.0  # without an answer of a worker, which gives one each second
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


class RayAttempt:
    """Runs a gang on actors.

    Args:
        assignment: the attempt.
        actors: of the worker of each rank; nodes: their ids.

    Attributes:
        gang: decides on the outcome.
        lost: ranks whose worker is dead.
        refs: the objects that Ray has to wait for; give each that is ready to `receive`.
    """

    def __init__(
        self, assignment: Assignment, actors: Sequence[Any], nodes: Collection[str]
    ) -> None:
        self.refs: dict[Any, int] = {}
        self.lost: set[int] = set()
        self._label, self.key = assignment.label, (assignment.trial, assignment.attempt)
        self._actors = actors
        self._mail: dict[int, Any] = {}
        self._asked: dict[int, float] = {}  # when
        self.meeting = self._rendezvous(nodes)
        handles = [_Rank(self, actor) for actor in actors]
        self.gang = Gang(assignment, handles, rendezvous="of Ray")
        for rank in range(len(actors)):
            self._take(rank)

    def receive(self, ref: Any) -> Iterator[Message]:
        """What one of `refs` tells, once it is ready."""
        rank = self.refs.pop(ref)
        try:
            value = ray.get(ref)
        except ray.exceptions.RayError as error:
            self.lost.add(rank)
            yield self.gang, rank, News([_outcome(self.gang.assignment, error)], 0.0)
            return
        if ref != self._mail.get(rank):
            return  # the rank has ended; its outcome comes by mail, after its last report
        for message in value:
            yield self.gang, rank, message
        if self.gang.is_running(rank):
            self._take(rank)

    def kill_silent(self) -> None:
        """Kill the workers that do not answer: Ray then says that they are gone."""
        for rank, asked in self._asked.items():
            if self.gang.is_running(rank) and time.monotonic() - asked > SILENT_SECONDS:
                ray.kill(self._actors[rank])

    def _take(self, rank: int) -> None:
        # No task events: the dashboard's list of tasks is for attempts.
        take = self._actors[rank].take.options(
            name=self._label, concurrency_group="mail", enable_task_events=False
        )
        self._mail[rank] = ref = take.remote(*self.key, TAKE_SECONDS)
        self.refs[ref] = rank
        self._asked[rank] = time.monotonic()

    def _rendezvous(self, nodes: Collection[str]) -> Any:
        """The address that rank 0's worker will open for the others; nobody waits for it here."""
        if len(self._actors) == 1:
            return ""
        address = self._actors[0].address.options(concurrency_group="control")
        return address.remote(on_one_node=len(set(nodes)) == 1)


@dataclass(frozen=True)
class _Rank:
    """What a gang needs of an actor for one attempt."""

    attempt: RayAttempt
    actor: Any

    def run(self, assignment: Assignment, rank: int, rendezvous: str) -> None:
        begin = self.actor.run.options(name=assignment.label)
        self.attempt.refs[begin.remote(assignment, rank, self.attempt.meeting)] = rank

    def stop(self, how: StopRequest) -> None:
        self._control(self.actor.stop).remote(*self.attempt.key, how)

    def dump(self, assignment: Assignment, rank: int) -> None:
        self._control(self.actor.dump).remote(assignment, rank)

    def kill(self) -> None:
        self._control(self.actor.end).remote(*self.attempt.key)

    def _control(self, method: Any) -> Any:
        return method.options(concurrency_group="control", enable_task_events=False)


def _outcome(assignment: Assignment, error: Exception) -> Outcome:
    """What an error of Ray says of a worker: it is gone, and the trial is not to blame.

    The trial ran in another process; if that dies by itself, the worker tells.
    """
    text = " ".join(str(error).split())
    if isinstance(error, ray.exceptions.OutOfMemoryError):
        message = f"the machine ran out of memory and the worker was killed: {text[:300]}"
        return lost(assignment, message, failure="out_of_memory", cause=Cause.KILLED)
    if isinstance(error, ray.exceptions.RayTaskError):
        return lost(assignment, f"the worker failed: {text[-300:]}")
    # What follows are the actor's class, ids and addresses, a line each.
    message = f"the worker is gone: {text.partition(' class_name:')[0][:300]}"
    return lost(assignment, message, failure="preempted")
