"""One attempt on warm Ray workers: one for each rank, one outcome for all of them."""

from __future__ import annotations

import re
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import ray

from workers.protocol import (
    LEAVING,
    Assignment,
    Ending,
    Event,
    Halt,
    Outcome,
    Pulse,
    Started,
    lost,
    was_lost,
)
from workers.run import combine

from .oom import oom_kills
from .supervision import Progress

TAKE_SECONDS: Final = 1.0  # how long a worker waits for mail before it answers with none
DUMP_SECONDS: Final = 1.0
GRACE_SECONDS: Final = 3.0  # for the other ranks to say what they saw after one has failed


@dataclass(frozen=True)
class Seat:
    """A worker: its actor and the id of its node."""

    actor: Any
    node: str


class Gang:
    """Runs an attempt on as many workers as it has ranks; one that fails or dies ends all.

    Args:
        assignment: what is run.
        seats: a worker for each rank.

    Attributes:
        refs: what Ray is to wait for; each goes to `receive` when it is there.
        outcome: of the attempt; None while it runs.
        spent: ranks whose worker cannot be used again.
    """

    def __init__(self, assignment: Assignment, seats: Sequence[Seat]) -> None:
        self.assignment, self._seats = assignment, seats
        self._begun = time.monotonic()
        self._progress = Progress(assignment.limits.timeout_seconds, range(len(seats)))
        self._deadline: float | None = None
        self._outcomes: dict[int, Outcome] = {}
        self._meeting = _Meeting(seats)
        self._oom_kills = oom_kills()
        self.outcome: Outcome | None = None
        self.spent: set[int] = set()
        self.refs: dict[Any, int] = {
            seat.actor.run.options(name=assignment.label).remote(
                assignment, rank, self._meeting.url
            ): rank
            for rank, seat in enumerate(seats)
        }
        self._mail: dict[int, Any] = {}
        for rank in range(len(seats)):
            self._take(rank)

    def receive(self, ref: Any) -> list[Event]:
        """What has come with one of `refs`: the outcome of the whole attempt is the last that ever does."""
        rank = self.refs.pop(ref)
        try:
            value = ray.get(ref)
        except ray.exceptions.RayError as error:
            return self._failed(rank, error)
        if ref == self._mail.get(rank):
            return self._read(rank, *value)
        # Rank 0 tells its outcome by mail, after its last report.
        return [] if rank == 0 else self._ended(rank, value)

    def _read(self, rank: int, events: list[Event], pulse: Pulse) -> list[Event]:
        self._progress.note(rank, pulse)
        if any(isinstance(event, Started) for event in events):
            self._begun = time.monotonic()  # until then the worker was still getting ready
        reports: list[Event] = [event for event in events if not isinstance(event, Outcome)]
        outcomes = [event for event in events if isinstance(event, Outcome)]
        if outcomes:
            return reports + self._ended(rank, outcomes[0])
        if rank not in self._outcomes:
            self._take(rank)
        return reports

    def halt(self, how: Halt) -> None:
        """Ask every rank to end."""
        for seat in self._seats:
            seat.actor.halt.options(concurrency_group="control", enable_task_events=False).remote(
                self.assignment.trial, self.assignment.attempt, how
            )

    def kill(self, failure: str, message: str) -> list[Event]:
        """End every rank by force."""
        return self._conclude(lost(self.assignment, message, failure=failure))

    def watch(self) -> list[Event]:
        """To be called now and then: ends what hangs, and ranks that stay on after another has failed."""
        if self.outcome is not None:
            return []
        if self._deadline is not None and time.monotonic() > self._deadline:
            return self._conclude(self._blamed())
        if self._progress.hangs:
            self._dump()
            return self.kill("timeout", self._progress.message())
        return []

    def _take(self, rank: int) -> None:
        # No task events: the dashboard's list of tasks is for attempts.
        take = self._seats[rank].actor.take.options(
            name=self.assignment.label, concurrency_group="mail", enable_task_events=False
        )
        self._mail[rank] = ref = take.remote(TAKE_SECONDS)
        self.refs[ref] = rank

    def _dump(self) -> None:
        """Have the ranks that hang write where they are, as far as they still answer."""
        refs = [
            seat.actor.dump.options(concurrency_group="control", enable_task_events=False).remote(
                self.assignment, rank
            )
            for rank, seat in enumerate(self._seats)
            if rank not in self._outcomes
        ]
        ray.wait(refs, num_returns=len(refs), timeout=DUMP_SECONDS)

    def _failed(self, rank: int, error: Exception) -> list[Event]:
        if rank in self._outcomes or self.outcome is not None:
            return []
        failure, message = _explain(error)
        if (
            failure == "crashed"
            and self._seats[rank].node == _own_node()
            and oom_kills() > self._oom_kills
        ):
            failure, message = (
                "out_of_memory",
                f"the machine ran out of memory and its kernel killed the worker: {message}",
            )
        if len(self._seats) > 1:
            message = f"rank {rank}: {message}"
        self.spent.add(rank)
        return self._ended(rank, lost(self.assignment, message, failure=failure))

    def _ended(self, rank: int, outcome: Outcome) -> list[Event]:
        if rank in self._outcomes or self.outcome is not None:
            return []
        self._outcomes[rank] = outcome
        self._progress.ended(rank)
        if outcome.details.get(LEAVING):
            self.spent.add(rank)
        if len(self._outcomes) == len(self._seats):
            return self._conclude(self._blamed())
        if outcome.ending is Ending.FAILED and self._deadline is None:
            self._deadline = time.monotonic() + GRACE_SECONDS
        return []

    def _blamed(self) -> Outcome:
        """The outcome that explains the others; a worker that died explains connections that broke."""
        combined = combine([self._outcomes[rank] for rank in sorted(self._outcomes)])
        gone = [outcome for outcome in self._outcomes.values() if was_lost(outcome)]
        return gone[0] if gone and combined.failure == "crashed" else combined

    def _conclude(self, outcome: Outcome) -> list[Event]:
        """End what still runs, free everything, and tell the one outcome."""
        self.spent |= set(range(len(self._seats))) - set(self._outcomes)
        for rank in self.spent:
            ray.kill(self._seats[rank].actor, no_restart=True)
        self._meeting.close()
        self.refs.clear()
        seconds = outcome.seconds or time.monotonic() - self._begun
        self.outcome = Outcome(**{**vars(outcome), "seconds": seconds})
        return [self.outcome]


class _Meeting:
    """Where the ranks meet: a file where they share a node, so that no port can be taken; else a free port."""

    def __init__(self, seats: Sequence[Seat]) -> None:
        self._file: Path | None = None
        if len(seats) == 1:
            self.url = ""
        elif len({seat.node for seat in seats}) == 1:
            self._file = Path(tempfile.gettempdir()) / f"automl-meeting-{uuid.uuid4().hex}"
            self.url = f"file://{self._file}"
        else:
            self.url = ray.get(
                seats[0].actor.address.options(concurrency_group="control").remote(), timeout=120
            )

    def close(self) -> None:
        """Remove the file; one on another node stays until its temporary folder is emptied."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)


def _own_node() -> str:
    node: str = ray.get_runtime_context().get_node_id()
    return node


def _explain(error: Exception) -> tuple[str, str]:
    """The kind of failure that an error of Ray stands for, and a line about it."""
    text = " ".join(str(error).split())
    if (
        isinstance(error, ray.exceptions.OutOfMemoryError)
        or "OutOfMemory" in text
        or "low on memory" in text
    ):
        return (
            "out_of_memory",
            f"the machine ran out of memory and the worker was killed: {text[:300]}",
        )
    if isinstance(error, ray.exceptions.RayTaskError):
        return "crashed", f"the worker failed: {text[-300:]}"
    pid, detail = (
        re.search(r"\bpid: (\d+)", text),
        re.search(r"Worker exit detail: (.*?\.)(?: |$)", text),
    )
    who = f"the worker (process {pid[1]})" if pid else "the worker"
    return "crashed", f"{who} died: {detail[1] if detail else text[:300]}"
