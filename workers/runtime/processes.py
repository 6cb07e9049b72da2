"""The processes of ranks on this machine: how they are asked for, heard and ended."""

import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import recv_handle
from pathlib import Path
from typing import IO, Any, Final

from search_spaces.errors import AutomlError, StoreError, UsageError
from workers.protocol import Asked, Assignment, Cause, Death, Outcome, Report, StopRequest, open_log
from workers.run import Objective

from .devices import environment_of
from .gang import Gang, oom_kills, signal_name
from .parent import ALL, ENVIRONMENT, News, end_session
from .pickling import pickle_objective

POLL_SECONDS: Final = 0.1  # between two looks at whether a rank has died or hangs
EXIT_SECONDS: Final = 1.0  # for a process that has closed its connection to end
SIGN_SECONDS: Final = 30.0  # from the fork to the first sign of life
MAX_MESSAGES: Final = 64  # taken from one process before the others have their turn
# The modules of this process are found at the same places; a name that `ps` shows comes first.
_BOOT: Final = (
    "import sys; name, *given = sys.argv[1:8]; "
    "sys.path[:], sys.argv[:] = sys.argv[8:], [name]; "
    "from workers.runtime.parent import main; main(*given)"
)
_LOG: Final = logging.getLogger(__name__)


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
        closed: whether it was ended by this process.
        heard: whether it has given a sign of life.
    """

    def __init__(self, parent: "Parent") -> None:
        self._parent = parent
        self.connection: Any = None
        self.pid: int | None = None
        self.status: int | None = None
        self.closed = self.heard = False
        self._stop: StopRequest | None = None
        self._silent, self._since = "", 0.0  # why nothing comes any more, and since when
        self._oom_kills = oom_kills()

    def run(self, assignment: Assignment, rank: int, rendezvous: str) -> None:
        """Run a rank as soon as there is a process."""
        self._parent.start(self, assignment, rank, rendezvous)

    def forked(self, pid: int, handle: int) -> None:
        """There is a process, with this number and socket."""
        self.pid, self.connection, self._since = pid, Connection(handle), time.monotonic()
        if self._stop is not None:
            self.stop(self._stop)
        if self.closed:
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
        self.closed = True
        if self.pid is not None and self.status is None:
            end_session(self.pid)

    @property
    def listens(self) -> bool:
        """Whether something may come from the process."""
        return not (self.connection is None or self.closed or self._silent)

    def receive(self) -> list[News | Death]:
        """What the process has sent, and how it has died."""
        found: list[News | Death] = []
        while self.listens and self.connection.poll() and len(found) < MAX_MESSAGES:
            try:
                message = self.connection.recv()
            except (EOFError, OSError):
                self._silent = "closed its connection"
            except Exception:  # the objective shares the process and can write to its socket
                message = None
            if not self._silent and not isinstance(message, News):
                self._silent = "sent a message that cannot be read"
            if self._silent:
                self._since = time.monotonic()
            else:
                self.heard = True
                found.append(message)
        if len(found) < MAX_MESSAGES and not self.closed and (death := self._death()):
            found.append(death)
        return found

    def _death(self) -> Death | None:
        """How the process has died, or why it must be ended; None if it goes on."""
        who = f"the worker (process {self.pid})"
        status = self.status
        if status is None:
            waits = self.pid is not None and not self.heard
            limit = EXIT_SECONDS if self._silent else SIGN_SECONDS
            if not (self._silent or waits) or time.monotonic() - self._since < limit:
                return None
            return Death(f"{who} {self._silent or 'gave no sign of life'}")
        if status >= 0:
            how = f"{who} ended with exit status {status}"
            return Death(how, cause=Cause.EXITED, status=status)
        how = f"{who} was killed by signal {-status} ({signal_name(-status)})"
        if -status == signal.SIGKILL and oom_kills() > self._oom_kills:
            how = f"the machine ran out of memory and its kernel killed the worker: {how}"
            return Death(how, "out_of_memory", Cause.KILLED, status)
        from_outside = -status in (signal.SIGKILL, signal.SIGTERM)
        cause = Cause.KILLED if from_outside else Cause.SIGNALLED
        return Death(how, cause=cause, status=status)

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
        self._environment = {**os.environ, **ENVIRONMENT}
        # Else each process would start up to 32 others that compile.
        self._environment.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(threads))
        if not self._environment.keys() & {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}:
            # Segments that grow leave no pieces that batches of other shapes cannot use.
            self._environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        # cuBLAS reads it once, with the first product: the knob `deterministic` comes later.
        self._environment.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        self._environment |= environment
        self._ranks: dict[int, RankProcess] = {}  # that were asked for and are not gone
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

    def start(self, process: RankProcess, a: Assignment, rank: int, rendezvous: str) -> None:
        """Run a rank in a process of its own."""
        self._ranks[id(process)] = process
        with suppress(OSError):  # the parent has died, which is noticed soon
            self.connection.send((id(process), a, rank, rendezvous))

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
            for rank in self._ranks.values():
                rank.lost()
            self._ranks.clear()
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
            self._ranks[key].forked(pid, recv_handle(self.connection))
        else:
            pid, status = facts
            for key, rank in list(self._ranks.items()):
                if rank.pid == pid:
                    rank.status = status
                    del self._ranks[key]

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
    heard = [rank.connection for rank in ranks if rank.listens]
    wait([*heard, *(parent.connection for parent in parents)], timeout)
    for parent in parents:
        parent.receive()
    return [(rank, message) for rank in ranks for message in rank.receive()]


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
