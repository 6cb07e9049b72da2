"""An attempt on Ray actors: what Ray has to wait for, and how the errors of Ray are explained."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray

from workers.protocol import Assignment, Event, Outcome, StopRequest
from workers.runtime.gang import TAKE_SECONDS, Gang


@dataclass(frozen=True)
class RayWorker:
    """A worker: its actor, and the id and kind (see `reservation.kind_of`) of its node."""

    actor: Any
    node: str
    kind: str


class RayAttempt:
    """Runs a gang on actors.

    Args:
        assignment: the attempt.
        workers: one for each rank.

    Attributes:
        gang: decides on the outcome.
        refs: the objects that Ray has to wait for; give each that is ready to `receive`.
    """

    def __init__(self, assignment: Assignment, workers: Sequence[RayWorker]) -> None:
        self.refs: dict[Any, int] = {}
        self._label = assignment.label
        self._workers = workers
        self._mail: dict[int, Any] = {}
        self._meeting = self._rendezvous()
        handles = [_Rank(self, worker.actor) for worker in workers]
        self.gang = Gang(assignment, handles, rendezvous="of Ray")
        for rank in range(len(workers)):
            self._take(rank)

    def begin(self, actor: Any, assignment: Assignment, rank: int) -> None:
        """Begin to run a rank."""
        run = actor.run.options(name=self._label)
        self.refs[run.remote(assignment, rank, self._meeting)] = rank

    def receive(self, ref: Any) -> list[Event]:
        """The events of one of `refs`; the outcome of the whole attempt is the last event."""
        rank = self.refs.pop(ref)
        try:
            value = ray.get(ref)
        except ray.exceptions.RayError as error:
            failure, message = _explain(error)
            here = self._workers[rank].node == ray.get_runtime_context().get_node_id()
            return self.gang.lose(rank, message, failure=failure, by_sigkill=here)
        if ref != self._mail.get(rank):
            return []  # the rank has ended; its outcome comes by mail, after its last report
        events = self.gang.receive(rank, *value)
        if self.gang.is_running(rank):
            self._take(rank)
        return events

    def placed(self, event: Event) -> Event:
        """The event; an outcome tells the kinds of the nodes, joined by `+`."""
        kinds = sorted({worker.kind for worker in self._workers} - {""})
        if not isinstance(event, Outcome) or not kinds:
            return event
        return replace(event, node_kind="+".join(kinds))

    def _take(self, rank: int) -> None:
        # No task events: the dashboard's list of tasks is for attempts.
        take = self._workers[rank].actor.take.options(
            name=self._label, concurrency_group="mail", enable_task_events=False
        )
        self._mail[rank] = ref = take.remote(TAKE_SECONDS)
        self.refs[ref] = rank

    def _rendezvous(self) -> Any:
        """The address that rank 0's worker will open for the others; nobody waits for it here."""
        if len(self._workers) == 1:
            return ""
        address = self._workers[0].actor.address.options(concurrency_group="control")
        return address.remote(on_one_node=len({worker.node for worker in self._workers}) == 1)


@dataclass(frozen=True)
class _Rank:
    """The `WorkerHandle` of an actor for one attempt."""

    attempt: RayAttempt
    actor: Any

    def run(self, assignment: Assignment, rank: int, rendezvous: str) -> None:
        self.attempt.begin(self.actor, assignment, rank)

    def stop(self, trial: int, attempt: int, how: StopRequest) -> None:
        self._control(self.actor.stop).remote(trial, attempt, how)

    def dump(self, assignment: Assignment, rank: int) -> None:
        self._control(self.actor.dump).remote(assignment, rank)

    def kill(self) -> None:
        ray.kill(self.actor, no_restart=True)

    def _control(self, method: Any) -> Any:
        return method.options(concurrency_group="control", enable_task_events=False)


def _explain(error: Exception) -> tuple[str, str]:
    """The kind of failure of an error of Ray, and one line that describes it."""
    text = " ".join(str(error).split())
    words = "OutOfMemory" in text or "low on memory" in text
    if words or isinstance(error, ray.exceptions.OutOfMemoryError):
        return (
            "out_of_memory",
            f"the machine ran out of memory and the worker was killed: {text[:300]}",
        )
    if isinstance(error, ray.exceptions.RayTaskError):
        return "crashed", f"the worker failed: {text[-300:]}"
    pid = re.search(r"\bpid: (\d+)", text)
    detail = re.search(r"Worker exit detail: (.*?\.)(?: |$)", text)
    who = f"the worker (process {pid[1]})" if pid else "the worker"
    if "its node has died" in text:
        node = re.search(r"\bip: (\S+)", text)
        return "crashed", f"{who} is gone: its node{f' {node[1]}' if node else ''} was lost"
    # What follows are the actor's class, ids and addresses, a line each.
    reason = detail[1] if detail else text.partition(" class_name:")[0][:300]
    return "crashed", f"{who} died: {reason}"
