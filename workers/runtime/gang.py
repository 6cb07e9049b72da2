"""A gang: one attempt, one process for each rank, one outcome for all of them.

The gang knows the address at which its ranks meet. The ranks themselves make their process group
there (`workers.ranks.process_group.connect`).
"""

import re
import signal
import tempfile
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from workers.protocol import (
    Assignment,
    Death,
    Ending,
    Event,
    Outcome,
    Started,
    StopRequest,
    lost,
)
from workers.run import combine

from .parent import News


class HangDetector:
    """Counts the steps of each rank and the time since the last step of any rank.

    Ranks wait for each other: one rank that hangs soon stops all, and rank 0 may evaluate for a
    long time while the others wait. So an attempt hangs if no rank moves.

    Args:
        limit: seconds without a step after which the attempt hangs; None for no limit.
        awaited: ranks whose process may still be starting, which is not the trial's fault: until
            each has given a sign of life, nothing hangs.
    """

    def __init__(self, limit: float | None, awaited: Iterable[int] = ()) -> None:
        self._limit = limit
        self._awaited = set(awaited)
        self._moved = time.monotonic()
        self._steps: dict[int, int] = {}

    def record(self, rank: int, idle_seconds: float, steps: int) -> None:
        """Take in a sign of life of a rank, see `News`."""
        self._awaited.discard(rank)
        self._steps[rank] = steps
        self._moved = max(self._moved, time.monotonic() - idle_seconds)

    def ended(self, rank: int) -> None:
        """A rank has ended; the others have the full time-out to follow."""
        self._awaited.discard(rank)
        self._moved = time.monotonic()
        self._steps.pop(rank, None)

    @property
    def hangs(self) -> bool:
        """Whether no rank has moved within the time-out."""
        if self._limit is None or self._awaited:
            return False
        return time.monotonic() - self._moved > self._limit

    def message(self) -> str:
        """Describes the hang to a person; names the ranks that are behind."""
        text = f"no step or report for {time.monotonic() - self._moved:.0f} s"
        furthest = max(self._steps.values(), default=0)
        behind = [f"rank {rank}" for rank, steps in sorted(self._steps.items()) if steps < furthest]
        return text + (f"; {' and '.join(behind)} stopped before the others" if behind else "")


def oom_kills() -> int:
    """How many processes the kernel has killed for memory since boot; 0 if it does not say."""
    try:
        found = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def signal_name(number: int) -> str:
    """The name of a signal, such as SIGKILL."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


DUMP_SECONDS: Final = 1.0  # for the ranks of an attempt that hangs to write their stacks
GRACE_SECONDS: Final = 3.0  # for the other ranks to tell what they know after one has failed


class Gang:
    """Decides on the outcome of one attempt from what its ranks send.

    A gang of which one rank fails ends as a whole, and the first cause is kept.

    Args:
        assignment: the attempt, which begins at once.
        workers: a `workers.runtime.processes.RankProcess` for each rank, or what has its methods
            `run`, `stop`, `dump` and `kill`, none of which waits.
        rendezvous: where the ranks meet; "" for a file on this machine.

    Attributes:
        outcome: None while the attempt runs.
    """

    def __init__(
        self, assignment: Assignment, workers: Sequence[Any], rendezvous: str = ""
    ) -> None:
        self.assignment = assignment
        self.outcome: Outcome | None = None
        self._workers = workers
        self._begun = time.monotonic()
        self._hangs = HangDetector(assignment.limits.timeout_seconds, range(len(workers)))
        self._hang = ""  # describes the hang while the ranks write their stacks
        self._deadline: float | None = None
        self._outcomes: dict[int, Outcome] = {}
        self._file: Path | None = None
        if len(workers) > 1 and not rendezvous:
            self._file = Path(tempfile.gettempdir()) / f"automl-meeting-{uuid.uuid4().hex}"
            rendezvous = f"file://{self._file}"
        for rank, worker in enumerate(workers):
            worker.run(assignment, rank, rendezvous)

    def is_running(self, rank: int) -> bool:
        """Whether a rank has no outcome yet."""
        return self.outcome is None and rank not in self._outcomes

    def receive(self, rank: int, message: News | Death) -> list[Event]:
        """The events of a rank for the controller; the outcome of the attempt is the last."""
        if isinstance(message, Death):
            outcome = lost(
                self.assignment,
                message.message if len(self._workers) == 1 else f"rank {rank}: {message.message}",
                failure=message.failure,
                cause=message.cause,
                exit_status=message.status,
            )
            return self._ended(rank, outcome)
        self._hangs.record(rank, message.idle_seconds, message.steps)
        passed: list[Event] = []
        for event in message.events:
            if isinstance(event, Started):
                self._begun = time.monotonic()  # until now the process was still getting ready
            passed += self._ended(rank, event) if isinstance(event, Outcome) else [event]
        return passed

    def stop(self, how: StopRequest) -> None:
        """Ask every rank to stop."""
        for worker in self._workers:
            worker.stop(how)

    def kill(self, failure: str, message: str) -> list[Event]:
        """End every rank by force."""
        if self.outcome is not None:
            return []
        return self._conclude(lost(self.assignment, message, failure=failure))

    def close(self) -> None:
        """Remove the file at which the ranks met; call it if the ranks ended without outcome."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def watch(self) -> list[Event]:
        """End the attempt if it hangs or ranks go on after another has failed; call it often."""
        if self.outcome is not None:
            return []
        if self._deadline is not None and time.monotonic() > self._deadline:
            if self._hang:
                return self._conclude(lost(self.assignment, self._hang, failure="timeout"))
            return self._conclude(self._first_cause())
        if self._hangs.hangs and not self._hang:
            self._hang = self._hangs.message()
            self._deadline = time.monotonic() + DUMP_SECONDS
            for rank, worker in enumerate(self._workers):
                if self.is_running(rank):
                    worker.dump(self.assignment, rank)
        return []

    def _ended(self, rank: int, outcome: Outcome) -> list[Event]:
        if not self.is_running(rank):
            return []
        self._outcomes[rank] = outcome
        self._hangs.ended(rank)
        if len(self._outcomes) == len(self._workers):
            return self._conclude(self._first_cause())
        if outcome.ending is Ending.FAILED and self._deadline is None:
            self._deadline = time.monotonic() + GRACE_SECONDS
        return []

    def _first_cause(self) -> Outcome:
        """The outcome that explains the others: a lost rank explains broken connections."""
        combined = combine([self._outcomes[rank] for rank in sorted(self._outcomes)])
        gone = [outcome for outcome in self._outcomes.values() if outcome.worker_lost]
        return gone[0] if gone and combined.failure == "crashed" else combined

    def _conclude(self, outcome: Outcome) -> list[Event]:
        """End what still runs, and return the outcome."""
        for worker in self._workers:
            worker.kill()
        self.close()
        seconds = outcome.seconds or time.monotonic() - self._begun
        self.outcome = replace(outcome, seconds=seconds)
        return [self.outcome]
