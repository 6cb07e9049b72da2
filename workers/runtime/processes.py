"""The processes of ranks on this machine: how they are asked for, heard and ended."""

import contextlib
import itertools
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import IO, Any, Final

from search_spaces.errors import AutomlError, UsageError
from workers.protocol import Asked, Assignment, Cause, Death, Outcome, Report, StopRequest
from workers.run import Objective

from .child import Broken, News, end_session
from .devices import environment_of
from .gang import Gang, oom_kills, signal_name
from .parent import ALL, ENVIRONMENT, Forked, Loaded, Reaped, Start
from .pickling import pickle_objective

POLL_SECONDS: Final = 0.1  # between two looks at whether a rank has died or hangs
EXIT_SECONDS: Final = 1.0  # for a process that has closed its connection to end
SIGN_SECONDS: Final = 30.0  # from the fork to the first sign of life
MAX_MESSAGES: Final = 64  # taken from one process before the others have their turn
MAX_FAILED_STARTS: Final = 3  # of a parent, in a row
# The modules of this process are found at the same places; a name that `ps` shows comes first.
_BOOT: Final = (
    "import sys; name, *given = sys.argv[1:10]; given.remove('--'); "
    "sys.path[:], sys.argv[:] = sys.argv[10:], [name]; "
    "from workers.runtime.parent import main; main(*given)"
)
_LOG: Final = logging.getLogger(__name__)


class ObjectiveFile:
    """What ranks run, as an open file without a name: a large objective is written once.

    Args:
        objective: the user's, or what `pickle_objective` has made; None if a workload is run.

    Raises:
        UsageError: the objective cannot be pickled.
    """

    def __init__(self, objective: Callable[[Any], Any] | bytes | None) -> None:
        self._file: IO[bytes] | None = None
        if objective is not None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115
            if isinstance(objective, bytes):
                self._file.write(objective)
            else:
                pickle_objective(objective, self._file)
            self._file.flush()

    @property
    def descriptor(self) -> int:
        """Of the file; -1 if there is no objective."""
        return -1 if self._file is None else self._file.fileno()

    def close(self) -> None:
        """Free the file; parents that have been started keep their own."""
        if self._file is not None:
            self._file.close()


class RankProcess:
    """A process for one rank of one attempt. No method waits for it; see `WorkerHandle`.

    Attributes:
        connection: to the process.
        pid: None until it is forked.
        status: None until it has ended; below 0 the signal that has ended it.
        closed: whether it was ended by this process.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.pid: int | None = None
        self.status: int | None = None
        self.closed = False
        self.since: float | None = None  # when it was forked, or closed its connection
        self.heard = self.disconnected = self.garbled = False
        self._oom_kills = oom_kills()

    def run(self, assignment: Assignment, rank: int, rendezvous: str) -> None:
        """Run a rank."""
        self._send("run", assignment, rank, rendezvous)

    def stop(self, how: StopRequest) -> None:
        """Ask the rank to stop."""
        self._send("stop", how)

    def dump(self, assignment: Assignment, rank: int) -> None:
        """Let the process write the stacks of its threads to its log."""
        self._send("dump", assignment, rank)

    def kill(self) -> None:
        """End the process, and those of its session, which the objective has started."""
        if self.closed:
            return
        self.closed = True
        if self.pid is not None and self.status is None:
            end_session(self.pid)
        self.connection.close()  # one that was not forked yet finds it closed, and ends

    def receive(self) -> list[News | Death | Broken]:
        """What the process has sent, and how it has died."""
        found: list[News | Death | Broken] = []
        while not self.disconnected and self.connection.poll() and len(found) < MAX_MESSAGES:
            try:
                message = self.connection.recv()
            except (EOFError, OSError):
                self.disconnected, self.since = True, time.monotonic()
                break
            except Exception:  # the objective shares the process and can write to its socket
                message = None
            if not isinstance(message, News | Broken):
                self.garbled = True
                break
            self.heard = True
            found.append(message)
        if len(found) < MAX_MESSAGES and (death := self._death()):
            found.append(death)
        return found

    def _death(self) -> Death | None:
        """How the process has died, or why it must be ended; None if it goes on."""
        who = f"the worker (process {self.pid})"
        if self.garbled:
            return Death(f"{who} sent a message that cannot be read")
        if (status := self.status) is None:
            limit = EXIT_SECONDS if self.disconnected else SIGN_SECONDS
            waits = self.disconnected or (self.since is not None and not self.heard)
            if not waits or time.monotonic() - (self.since or 0.0) < limit:
                return None
            words = "closed its connection" if self.disconnected else "gave no sign of life"
            return Death(f"{who} {words}")
        if status >= 0:
            how = f"{who} ended with exit status {status}"
            return Death(how, cause=Cause.EXITED, status=status)
        how = f"{who} was killed by signal {-status} ({signal_name(-status)})"
        if -status not in (signal.SIGKILL, signal.SIGTERM):
            return Death(how, cause=Cause.SIGNALLED, status=status)
        if -status == signal.SIGKILL and oom_kills() > self._oom_kills:
            how = f"the machine ran out of memory and its kernel killed the worker: {how}"
            return Death(how, "out_of_memory", Cause.KILLED, status)
        return Death(how, cause=Cause.KILLED, status=status)

    def _send(self, *request: object) -> None:
        with contextlib.suppress(OSError):  # it has died, which is noticed by the next poll
            self.connection.send(request)


class Parent:
    """Forks the processes of ranks; see `workers.runtime.parent`. It ends with this process.

    Args:
        name: shown by `ps`.
        objective: what is run, if there is no workload.
        workload: name of the workload; None if there is an objective.
        threads: CPU threads of a rank; gpus: its GPUs, so that a rank begins once the one before
            is gone.
        environment: variables that differ from this process's.

    Attributes:
        loaded: whether it can fork.
    """

    def __init__(
        self,
        name: str,
        objective: ObjectiveFile,
        workload: str | None,
        threads: int,
        environment: Mapping[str, str],
        gpus: float = 0.0,
    ) -> None:
        self._objective, self._gpus = objective, gpus
        self._arguments = [name, workload or "", str(threads), str(gpus)]
        self._environment = {**os.environ, **ENVIRONMENT}
        # Else each process would start up to 32 others that compile.
        self._environment.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(threads))
        if not self._environment.keys() & {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}:
            # Segments that grow leave no pieces that batches of other shapes cannot use.
            self._environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        # cuBLAS reads it once, with the first product: the knob `deterministic` comes later.
        self._environment.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        self._environment |= environment
        self._failed_starts, self._keys = 0, itertools.count()
        self._ranks: dict[int, RankProcess] = {}  # that were asked for and are not gone
        self._launch()

    def _launch(self) -> None:
        ours, theirs = socket.socketpair()
        name, *rest = self._arguments
        numbers = [theirs.fileno(), self._objective.descriptor]
        folders = [str(Path(folder).absolute()) for folder in sys.path]
        command = [name, *map(str, numbers), *rest, "--", ALL, "", *folders]
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (until a rank has its log)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, *command],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                env=self._environment,
                pass_fds=[number for number in numbers if number >= 0],
                start_new_session=True,  # the controller handles Ctrl-C
            )
        self.connection = Connection(ours.detach())
        self.loaded = False

    def start(self, a: Assignment) -> RankProcess:
        """Ask for a process for a rank; `run` it at once: it begins when it is forked."""
        given = (a.params, a.data, a.fixed, a.seed) if a.workload else ()
        ours, theirs = socket.socketpair()
        key = next(self._keys)
        self._ranks[key] = rank = RankProcess(Connection(ours.detach()))
        with theirs, contextlib.suppress(OSError):  # the parent has died, which is noticed soon
            self.connection.send(Start(key, given))
            send_handle(self.connection, theirs.fileno(), self._process.pid)
        return rank

    def receive(self) -> None:
        """Take in what the parent has sent; start another one if it has died.

        Raises:
            UsageError: what is to be run cannot be loaded.
            AutomlError: it cannot be started.
        """
        try:
            while self.connection.poll():
                self._take(self.connection.recv())
        except (EOFError, OSError):
            self._restart()

    def _take(self, message: Loaded | Forked | Reaped) -> None:
        match message:
            case Loaded():
                self.loaded, self._failed_starts = True, 0
                if message.why:
                    _LOG.warning("each attempt imports anew in its process: %s", message.why)
                if message.broken:
                    refuse(message.broken)
            case Forked() if rank := self._ranks.get(message.key):
                rank.pid, rank.since = message.pid, time.monotonic()
                if rank.closed:
                    rank.closed = False
                    rank.kill()
            case Reaped():
                for key, rank in list(self._ranks.items()):
                    if rank.pid == message.pid:
                        rank.status = message.status
                        del self._ranks[key]

    def _restart(self) -> None:
        status = self._process.wait()
        if not self.loaded:
            self._failed_starts += 1
            if self._failed_starts >= MAX_FAILED_STARTS:
                self._output.seek(0)
                lines = self._output.read().decode(errors="replace").split("\n")
                words = next((line.strip() for line in reversed(lines) if line.strip()), "")
                raise AutomlError(
                    f"the worker (process {self._process.pid}) ended with exit status {status} "
                    f"before it was ready, {MAX_FAILED_STARTS} times in a row: "
                    f"{words[:500] or 'it printed nothing'}"
                )
        for rank in self._ranks.values():
            rank.disconnected, rank.since = True, 0.0
        self._ranks.clear()
        self.connection.close()
        self._output.close()
        self._launch()

    def close(self) -> None:
        """End it, with all that it has forked."""
        for rank in self._ranks.values():
            rank.kill()
        self.connection.close()  # it ends then, unless it is busy
        try:
            self._process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.close()


def refuse(why: str) -> None:
    """Raise the error of a target that cannot be loaded."""
    raise UsageError(f"the workers cannot load what they are to run: {why}")


def receive_all(
    parents: Sequence[Parent], ranks: Sequence[RankProcess], timeout: float
) -> list[tuple[RankProcess, News | Death]]:
    """Wait for messages of ranks.

    Args:
        parents: of the ranks.
        ranks: each is listened to until it is closed.
        timeout: seconds to wait, at most.

    Raises:
        UsageError, AutomlError: see `Parent.receive`.
    """
    heard = [rank.connection for rank in ranks if not (rank.closed or rank.disconnected)]
    wait([*heard, *(parent.connection for parent in parents)], timeout)
    for parent in parents:
        parent.receive()
    found: list[tuple[RankProcess, News | Death]] = []
    for rank in ranks:
        for message in [] if rank.closed else rank.receive():
            if isinstance(message, Broken):
                refuse(message.why)
            else:
                found.append((rank, message))
    return found


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
    a, parents = assignment, []
    file = ObjectiveFile(objective if a.workload is None else None)
    try:
        for rank in range(a.num_ranks if a.gpus else 1):
            environment = environment_of(rank, a.gpus, gpus)
            name = f"{a.sweep} trial {a.trial}"
            parents.append(Parent(name, file, a.workload, a.threads, environment, a.gpus))
        ranks = [parents[rank % len(parents)].start(a) for rank in range(a.num_ranks)]
        gang = Gang(a, ranks)
        stopping = False
        try:
            while gang.outcome is None:
                for rank_process, message in receive_all(parents, ranks, POLL_SECONDS):
                    for event in gang.receive(ranks.index(rank_process), message):
                        if isinstance(event, Report | Asked):
                            send(event)
                gang.watch()
                if not stopping and (request := stop_requested()) is not None:
                    stopping = True
                    gang.stop(request)
            return gang.outcome
        finally:
            gang.close()
    finally:
        for parent in parents:
            parent.close()
        file.close()
