"""The processes of ranks: how they are asked for, heard and ended, and the outcome that they make.

A gang is one attempt, with a process for each rank. It knows the address at which its ranks meet.
The ranks themselves make their process group there (`workers.ranks.connect`).
"""

import logging
import math
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import recv_handle
from pathlib import Path
from typing import IO, Any, Final

from search_spaces.errors import AutomlError, StoreError, UsageError
from workers.protocol import (
    Asked,
    Assignment,
    Cause,
    Ending,
    Event,
    Outcome,
    Report,
    Started,
    StopRequest,
    lost,
    open_log,
)
from workers.run import Objective

from .devices import environment_of
from .parent import ALL, ENVIRONMENT, News, end_session, pickle_objective

POLL_SECONDS: Final = 0.1  # between two looks at whether a rank has died or hangs
EXIT_SECONDS: Final = 1.0  # for a process that has closed its connection to end
SIGN_SECONDS: Final = 30.0  # from the fork to the first sign of life
DUMP_SECONDS: Final = 1.0  # for the ranks of an attempt that hangs to write their stacks
GRACE_SECONDS: Final = 3.0  # for the other ranks to tell what they know after one has failed
MAX_MESSAGES: Final = 64  # taken from one process before the others have their turn
# The modules of this process are found at the same places; a name that `ps` shows comes first.
_BOOT: Final = (
    "import sys; name, *given = sys.argv[1:8]; "
    "sys.path[:], sys.argv[:] = sys.argv[8:], [name]; "
    "from workers.runtime.parent import ForkServer; ForkServer(*given[:-1]).serve(given[-1])"
)
# If ranks fail differently, the first of these is the cause: one rank's failure breaks the others.
_CAUSES: Final = (
    "out_of_memory",
    "non_finite",
    "missing_metric",
    "timeout",
    "preempted",
    "crashed",
)
_LOG: Final = logging.getLogger(__name__)


def oom_kills() -> int:
    """How many processes the kernel has killed for memory since boot; 0 if it does not say."""
    try:
        found = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def signal_name(number: int) -> str:
    """The name of a signal, such as SIGKILL."""
    return next((one.name for one in signal.Signals if one == number), "unknown")


def objective_file(objective: Callable[[Any], Any] | bytes | None) -> IO[bytes] | None:
    """What ranks run, as an open file without a name: a large objective is written once.

    Args:
        objective: the user's, or what `pickle_objective` has made; None if a workload is run.

    Raises:
        UsageError: the objective cannot be pickled.
    """
    if objective is None:
        return None
    file = tempfile.TemporaryFile()  # noqa: SIM115
    if isinstance(objective, bytes):
        file.write(objective)
    else:
        pickle_objective(objective, file)
    file.flush()
    return file


class RankProcess:
    """A process for one rank of one attempt. No method waits for it.

    Args:
        parent: forks it.

    Attributes:
        connection: to the process; None until it is forked.
        pid: None until it is forked.
        status: None until it has ended; below 0 the signal that has ended it.
        closed: set once it was ended by this process.
        heard: whether it has given a sign of life.
    """

    def __init__(self, parent: "Parent") -> None:
        self._parent = parent
        self._assignment: Any = None  # until `run`
        self.connection: Any = None
        self.pid: int | None = None
        self.status: int | None = None
        self.heard, self.closed = False, threading.Event()
        self._stop: StopRequest | None = None
        self._silent, self._since = "", 0.0  # why nothing comes any more, and since when
        self._oom_kills = oom_kills()

    def run(self, assignment: Assignment, rank: int, rendezvous: str) -> None:
        """Run a rank as soon as there is a process."""
        self._assignment = assignment
        self._parent.ranks[id(self)] = self
        with suppress(OSError):  # the parent has died, which is noticed soon
            self._parent.connection.send((id(self), assignment, rank, rendezvous))

    def forked(self, pid: int, handle: int) -> None:
        """There is a process, with this number and socket."""
        self.pid, self.connection, self._since = pid, Connection(handle), time.monotonic()
        if self._stop is not None:
            self.stop(self._stop)
        if self.closed.is_set():
            self.kill()

    def stop(self, how: StopRequest) -> None:
        """Ask the rank to stop."""
        self._stop = how
        if self.connection is not None:
            with suppress(OSError):  # it has died, which is noticed by the next poll
                self.connection.send(how)

    def dump(self, assignment: Assignment, rank: int) -> None:
        """Let the process write the stacks of its threads to its log."""
        if self.pid is not None and self.status is None:
            with suppress(OSError, StoreError), open_log(assignment, rank) as log:
                log.write("the attempt hangs; the stacks of its threads are\n")
                os.kill(self.pid, signal.SIGQUIT)

    def kill(self) -> None:
        """End the process, and those of its session, which the objective has started."""
        self.closed.set()
        if self.pid is not None and self.status is None:
            end_session(self.pid)

    @property
    def listens(self) -> bool:
        """Whether something may come from the process."""
        return not (self.connection is None or self.closed.is_set() or self._silent)

    def receive(self) -> list[News]:
        """What the process has sent, and how it has died."""
        found: list[News] = []
        while self.listens and self.connection.poll() and len(found) < MAX_MESSAGES:
            try:
                found.append(News(*self.connection.recv()))
                self.heard = True
            except Exception as error:  # the objective can write to the socket of its process
                closed = isinstance(error, EOFError | OSError)
                what = "closed its connection" if closed else "sent a message that cannot be read"
                self._silent, self._since = what, time.monotonic()
        if len(found) < MAX_MESSAGES and not self.closed.is_set() and (death := self._death()):
            found.append(News([death], 0.0))
        return found

    def _death(self) -> Outcome | None:
        """How the process has died, or why it must be ended; None if it goes on."""
        a, who, status = self._assignment, f"the worker (process {self.pid})", self.status
        if status is None:
            waits = self.pid is not None and not self.heard
            limit = EXIT_SECONDS if self._silent else SIGN_SECONDS
            if not (self._silent or waits) or time.monotonic() - self._since < limit:
                return None
            return lost(a, f"{who} {self._silent or 'gave no sign of life'}")
        if status >= 0:
            how = f"{who} ended with exit status {status}"
            return lost(a, how, cause=Cause.EXITED, exit_status=status)
        how = f"{who} was killed by signal {-status} ({signal_name(-status)})"
        failure, cause = "crashed", Cause.SIGNALLED
        if -status in (signal.SIGKILL, signal.SIGTERM):  # from outside
            cause = Cause.KILLED
        if -status == signal.SIGKILL and oom_kills() > self._oom_kills:
            failure = "out_of_memory"
            how = f"the machine ran out of memory and its kernel killed the worker: {how}"
        return lost(a, how, failure=failure, cause=cause, exit_status=status)

    def lost(self) -> None:
        """Its parent is gone, and the process with it."""
        self._silent, self._since = "has lost its parent", 0.0


class Parent:
    """Forks the processes of ranks; see `workers.runtime.parent`. It ends with this process.

    Args:
        name: shown by `ps`.
        objective: the file of what is run, if there is no workload.
        workload: name of the workload; None if there is an objective.
        threads: CPU threads of a rank; gpus: its GPUs, so that a rank begins once the one before
            is gone.
        environment: variables that differ from this process's.

    Attributes:
        loaded: whether it can fork.
        ranks: those that were asked for and are not gone.
        connection: to it.
    """

    def __init__(
        self,
        name: str,
        objective: IO[bytes] | None,
        workload: str | None,
        threads: int,
        environment: Mapping[str, str],
        gpus: float = 0.0,
    ) -> None:
        self._name, self._objective = name, objective
        self._arguments = [workload or "", str(gpus)]
        self._environment = {
            # Else each process would start up to 32 others that compile.
            "TORCHINDUCTOR_COMPILE_THREADS": str(threads),
            # cuBLAS reads it once, with the first product: the knob `deterministic` comes later.
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
            **os.environ,
            **ENVIRONMENT,
            **environment,
        }
        if not self._environment.keys() & {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}:
            # Segments that grow leave no pieces that batches of other shapes cannot use.
            self._environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        self.ranks: dict[int, RankProcess] = {}
        self._launch()

    def _launch(self) -> None:
        ours, theirs = socket.socketpair()
        numbers = [theirs.fileno(), -1 if self._objective is None else self._objective.fileno()]
        folders = [str(Path(folder).absolute()) for folder in sys.path]
        given = [self._name, *map(str, numbers), *self._arguments, ALL, "", *folders]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, *given],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # until a rank has its log
                stderr=subprocess.DEVNULL,
                env=self._environment,
                pass_fds=[number for number in numbers if number >= 0],
                start_new_session=True,  # the controller handles Ctrl-C
            )
        self.connection = Connection(ours.detach())
        self.loaded = False

    def receive(self) -> None:
        """Take in what the parent has sent; start another one if it has died.

        Raises:
            UsageError: what is to be run cannot be loaded.
            AutomlError: it cannot be started.
        """
        try:
            while self.connection.poll():
                self._take(*self.connection.recv())
        except (EOFError, OSError):
            status = self._process.wait()
            if not self.loaded:
                raise AutomlError(
                    f"the worker (process {self._process.pid}) ended with exit status {status} "
                    'before it was ready; dispatcher="inline" shows why'
                ) from None
            gone, self.ranks = self.ranks, {}
            for rank in gone.values():
                rank.lost()
            self.connection.close()
            self._launch()

    def _take(self, what: str, *facts: Any) -> None:
        if what == "loaded":
            broken, why = facts
            self.loaded = True
            if broken:
                raise UsageError(f"the workers cannot load what they are to run: {broken}")
            if why:
                _LOG.warning("each attempt imports anew in its process: %s", why)
        elif what == "forked":
            key, pid = facts
            self.ranks[key].forked(pid, recv_handle(self.connection))
        else:
            pid, status = facts
            for key, rank in list(self.ranks.items()):
                if rank.pid == pid:
                    rank.status = status
                    del self.ranks[key]

    def close(self) -> None:
        """End it, with all that it has forked."""
        for rank in self.ranks.values():
            rank.kill()
        self.connection.close()  # it ends then, unless it is busy
        try:
            self._process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def receive_all(
    parents: Sequence[Parent], ranks: Sequence[RankProcess], timeout: float
) -> list[tuple[RankProcess, News]]:
    """Wait for messages of ranks.

    Args:
        parents: of the ranks.
        ranks: each is listened to until it is closed.
        timeout: seconds to wait, at most.

    Raises:
        UsageError, AutomlError: see `Parent.receive`.
    """
    heard = [rank.connection for rank in ranks if rank.listens]
    wait([*heard, *(parent.connection for parent in parents)], timeout)
    for parent in parents:
        parent.receive()
    return [(rank, message) for rank in ranks for message in rank.receive()]


class Gang:
    """Decides on the outcome of one attempt from what its ranks send.

    A gang of which one rank fails ends as a whole, and the first cause is kept. Ranks wait for each
    other, and rank 0 may evaluate for a long time while the others wait. So an attempt hangs if no
    rank moves. Until each has given a sign of life, its process may still be starting, which is not
    the trial's fault: nothing hangs.

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
        self._begun = self._moved = time.monotonic()  # the last step of any rank
        self._awaited = set(range(len(workers)))  # that have given no sign of life
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

    def receive(self, rank: int, message: News) -> list[Event]:
        """The events of a rank for the controller; the outcome of the attempt is the last."""
        self._awaited.discard(rank)
        self._moved = max(self._moved, time.monotonic() - message.idle_seconds)
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
        return self._conclude(lost(self.assignment, message, failure=failure))

    def close(self) -> None:
        """Remove the file at which the ranks met; call it if the ranks ended without outcome."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def watch(self) -> list[Event]:
        """End the attempt if it hangs or ranks go on after another has failed; call it often."""
        now, limit = time.monotonic(), self.assignment.limits.timeout_seconds
        if self.outcome is None and self._deadline is not None and now > self._deadline:
            hangs = lost(self.assignment, self._hang, failure="timeout")
            return self._conclude(hangs if self._hang else self._first_cause())
        if self._hang or self._awaited or limit is None or now - self._moved <= limit:
            return []
        self._hang = f"no step or report for {now - self._moved:.0f} s"
        self._deadline = now + DUMP_SECONDS
        for rank, worker in enumerate(self._workers):
            if self.is_running(rank):
                worker.dump(self.assignment, rank)
        return []

    def _ended(self, rank: int, outcome: Outcome) -> list[Event]:
        if not self.is_running(rank):
            return []
        if outcome.worker_lost and len(self._workers) > 1:
            said = f"rank {rank}: {outcome.message}"
            outcome = replace(outcome, message=said, failed_at=time.time())
        self._outcomes[rank] = outcome
        self._awaited.discard(rank)
        self._moved = time.monotonic()  # the others have the full time-out to follow
        if len(self._outcomes) == len(self._workers):
            return self._conclude(self._first_cause())
        if outcome.ending is Ending.FAILED and self._deadline is None:
            self._deadline = time.monotonic() + GRACE_SECONDS
        return []

    def _first_cause(self) -> Outcome:
        return combine([self._outcomes[rank] for rank in sorted(self._outcomes)])

    def _conclude(self, outcome: Outcome) -> list[Event]:
        """End what still runs, and return the outcome."""
        for worker in self._workers:
            worker.kill()
        self.close()
        seconds = outcome.seconds or time.monotonic() - self._begun
        self.outcome = replace(outcome, seconds=seconds)
        return [self.outcome]


def combine(outcomes: Sequence[Outcome]) -> Outcome:
    """Combine the outcomes of all ranks, in order of rank, into the outcome of the attempt.

    It has the metrics and ending of rank 0, the largest memory, and the likeliest first cause of
    failure.
    """
    first = outcomes[0]
    failed = [outcome for outcome in outcomes if outcome.failure is not None]
    peaks = [outcome.peak_memory_bytes for outcome in outcomes]
    details = {key: value for key, value in first.details.items() if key != "traceback"}
    worst = min(failed, key=_place_among_causes, default=first)
    if "traceback" in worst.details:
        details["traceback"] = worst.details["traceback"]
    return replace(
        first,
        ending=worst.ending,
        metrics={} if failed else first.metrics,
        failure=worst.failure,
        message=worst.message,
        seconds=max(outcome.seconds for outcome in outcomes),
        peak_memory_bytes=max((peak for peak in peaks if peak is not None), default=None),
        details=details,
        cause=worst.cause,
        exit_status=worst.exit_status,
        exception=worst.exception,
        worker_lost=worst.worker_lost,
        raised_at=worst.raised_at,
        failed_at=None,
    )


def _place_among_causes(outcome: Outcome) -> tuple[int, bool, float]:
    """Of failures of one kind that of a lost process is the cause, or else the earliest.

    It broke the connections of the others.
    """
    at = math.inf if outcome.failed_at is None else outcome.failed_at
    return _CAUSES.index(outcome.failure or "crashed"), not outcome.worker_lost, at


def run_gang(
    assignment: Assignment,
    send: Callable[[Any], None],
    stop_requested: Callable[[], StopRequest | None],
    objective: Objective | None = None,
    gpus: Sequence[str] | None = None,
) -> Outcome:
    """Run an assignment of n ranks as n new processes of this machine.

    The ranks meet at a file. One rank that fails, dies or hangs ends all. The output of a rank goes
    to its log in the trial's folder. The ranks end with this process.

    Args:
        assignment: the attempt; if `gpus` is above 0, each rank has GPUs of its own.
        send: receives the reports of rank 0, and what it asks for.
        stop_requested: polled about every 0.1 s.
        objective: the user's, if the assignment names no workload.
        gpus: of all ranks; None for all that this process may use.

    Raises:
        UsageError: the processes cannot load the objective or the workload.
    """
    a, name = assignment, f"{assignment.sweep} trial {assignment.trial}"
    file = objective_file(objective if a.workload is None else None)
    environments = [environment_of(rank, a.gpus, gpus) for rank in range(a.num_ranks)]
    parents = [
        Parent(name, file, a.workload, a.threads, environment, a.gpus)
        for environment in (environments if a.gpus else environments[:1])
    ]
    ranks = [RankProcess(parents[rank % len(parents)]) for rank in range(a.num_ranks)]
    gang = Gang(a, ranks)
    stopping = False
    try:
        while gang.outcome is None:
            for process, message in receive_all(parents, ranks, POLL_SECONDS):
                for event in gang.receive(ranks.index(process), message):
                    if isinstance(event, Report | Asked):
                        send(event)
            gang.watch()
            if not stopping and (request := stop_requested()) is not None:
                stopping = True
                gang.stop(request)
        return gang.outcome
    finally:
        gang.close()
        for parent in parents:
            parent.close()
