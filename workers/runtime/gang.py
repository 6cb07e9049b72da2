"""A gang: one attempt on warm Ray workers, one worker for each rank, one outcome for all of them.

The gang only chooses the address at which its ranks meet. The ranks themselves make their process
group there (`workers.parallel.mesh.connect`).
"""

import re
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import ray

from workers.protocol import (
    WORKER_SPENT,
    Assignment,
    Ending,
    Event,
    Heartbeat,
    Outcome,
    Started,
    StopRequest,
    lost,
    was_lost,
)
from workers.run import combine

from .supervision import HangDetector, oom_kills

TAKE_SECONDS: Final = 1.0  # how long a worker waits for events before it returns none
DUMP_SECONDS: Final = 1.0
GRACE_SECONDS: Final = 3.0  # for the other ranks to report their outcome after one has failed
ADDRESS_SECONDS: Final = 120.0  # for the first rank to open a rendezvous


@dataclass(frozen=True)
class WorkerHandle:
    """A worker: its actor and the id of its node ("" while it is not known)."""

    actor: Any
    node: str


class Gang:
    """Runs an attempt on as many workers as it has ranks; one that fails or dies ends all.

    Args:
        assignment: the attempt.
        workers: one for each rank.

    Attributes:
        refs: the objects that Ray has to wait for; give each that is ready to `receive`.
        outcome: of the attempt; None while it runs.
        spent: ranks whose worker cannot be used again.
    """

    def __init__(self, assignment: Assignment, workers: Sequence[WorkerHandle]) -> None:
        self.assignment = assignment
        self._workers = workers
        self._begun = time.monotonic()
        self._hangs = HangDetector(assignment.limits.timeout_seconds, range(len(workers)))
        self._deadline: float | None = None
        self._outcomes: dict[int, Outcome] = {}
        self._rendezvous = _Rendezvous(workers)
        self._oom_kills = oom_kills()
        self.outcome: Outcome | None = None
        self.spent: set[int] = set()
        self.refs: dict[Any, int] = {
            worker.actor.run.options(name=assignment.label).remote(
                assignment, rank, self._rendezvous.url
            ): rank
            for rank, worker in enumerate(workers)
        }
        self._mail: dict[int, Any] = {}
        for rank in range(len(workers)):
            self._take(rank)

    def receive(self, ref: Any) -> list[Event]:
        """The events of one of `refs`; the outcome of the whole attempt is the last event."""
        rank = self.refs.pop(ref)
        try:
            value = ray.get(ref)
        except ray.exceptions.RayError as error:
            return self._failed(rank, error)
        if ref == self._mail.get(rank):
            return self._read(rank, *value)
        # Rank 0 sends its outcome by mail, after its last report.
        return [] if rank == 0 else self._ended(rank, value)

    def stop(self, how: StopRequest) -> None:
        """Ask every rank to stop."""
        for worker in self._workers:
            worker.actor.stop.options(concurrency_group="control", enable_task_events=False).remote(
                self.assignment.trial, self.assignment.attempt, how
            )

    def kill(self, failure: str, message: str) -> list[Event]:
        """End every rank by force."""
        return self._conclude(lost(self.assignment, message, failure=failure))

    def watch(self) -> list[Event]:
        """End the attempt if it hangs or ranks go on after another has failed; call it often."""
        if self.outcome is not None:
            return []
        if self._deadline is not None and time.monotonic() > self._deadline:
            return self._conclude(self._first_cause())
        if self._hangs.hangs:
            self._dump()
            return self.kill("timeout", self._hangs.message())
        return []

    def _take(self, rank: int) -> None:
        # No task events: the dashboard's list of tasks is for attempts.
        take = self._workers[rank].actor.take.options(
            name=self.assignment.label, concurrency_group="mail", enable_task_events=False
        )
        self._mail[rank] = ref = take.remote(TAKE_SECONDS)
        self.refs[ref] = rank

    def _read(self, rank: int, events: list[Event], heartbeat: Heartbeat) -> list[Event]:
        self._hangs.record(rank, heartbeat)
        if any(isinstance(event, Started) for event in events):
            self._begun = time.monotonic()  # until now the worker was still getting ready
        reports: list[Event] = [event for event in events if not isinstance(event, Outcome)]
        outcomes = [event for event in events if isinstance(event, Outcome)]
        if outcomes:
            return reports + self._ended(rank, outcomes[0])
        if rank not in self._outcomes:
            self._take(rank)
        return reports

    def _dump(self) -> None:
        """Have each rank that still answers write the stacks of its threads to its log."""
        refs = [
            worker.actor.dump.options(concurrency_group="control", enable_task_events=False).remote(
                self.assignment, rank
            )
            for rank, worker in enumerate(self._workers)
            if rank not in self._outcomes
        ]
        ray.wait(refs, num_returns=len(refs), timeout=DUMP_SECONDS)

    def _failed(self, rank: int, error: Exception) -> list[Event]:
        if rank in self._outcomes or self.outcome is not None:
            return []
        failure, message = _explain(error)
        here = self._workers[rank].node == ray.get_runtime_context().get_node_id()
        if failure == "crashed" and here and oom_kills() > self._oom_kills:
            failure = "out_of_memory"
            message = f"the machine ran out of memory and its kernel killed the worker: {message}"
        if len(self._workers) > 1:
            message = f"rank {rank}: {message}"
        self.spent.add(rank)
        return self._ended(rank, lost(self.assignment, message, failure=failure))

    def _ended(self, rank: int, outcome: Outcome) -> list[Event]:
        if rank in self._outcomes or self.outcome is not None:
            return []
        self._outcomes[rank] = outcome
        self._hangs.ended(rank)
        if outcome.details.get(WORKER_SPENT):
            self.spent.add(rank)
        if len(self._outcomes) == len(self._workers):
            return self._conclude(self._first_cause())
        if outcome.ending is Ending.FAILED and self._deadline is None:
            self._deadline = time.monotonic() + GRACE_SECONDS
        return []

    def _first_cause(self) -> Outcome:
        """The outcome that explains the others: a lost worker explains broken connections."""
        combined = combine([self._outcomes[rank] for rank in sorted(self._outcomes)])
        gone = [outcome for outcome in self._outcomes.values() if was_lost(outcome)]
        return gone[0] if gone and combined.failure == "crashed" else combined

    def _conclude(self, outcome: Outcome) -> list[Event]:
        """Kill the workers that still run, free everything, and return the outcome."""
        self.spent |= set(range(len(self._workers))) - set(self._outcomes)
        for rank in self.spent:
            ray.kill(self._workers[rank].actor, no_restart=True)
        self._rendezvous.close()
        self.refs.clear()
        seconds = outcome.seconds or time.monotonic() - self._begun
        self.outcome = replace(outcome, seconds=seconds)
        return [self.outcome]


class _Rendezvous:
    """The address at which ranks meet: a file on one node, else a port of the first rank's node.

    A file needs no port that another process could take.
    """

    def __init__(self, workers: Sequence[WorkerHandle]) -> None:
        self._file: Path | None = None
        if len(workers) == 1:
            self.url = ""
        elif len({worker.node for worker in workers}) == 1:
            self._file = Path(tempfile.gettempdir()) / f"automl-meeting-{uuid.uuid4().hex}"
            self.url = f"file://{self._file}"
        else:
            address = workers[0].actor.address.options(concurrency_group="control")
            self.url = ray.get(address.remote(), timeout=ADDRESS_SECONDS)

    def close(self) -> None:
        """Remove the file; on another node it stays until its temporary folder is emptied."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)


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
    return "crashed", f"{who} died: {detail[1] if detail else text[:300]}"
