"""An attempt on Ray actors: what Ray has to wait for, and how the errors of Ray are explained."""

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import ray

from automl.dispatch.local import Message
from workers.protocol import Assignment, Cause, Outcome, StopRequest, lost
from workers.runtime.parent import TAKE_SECONDS, News
from workers.runtime.processes import Gang

SILENT_SECONDS: Final = 60.0  # without an answer of a worker, which gives one each second


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
