"""Workers in processes of this machine, without Ray: how they are started, heard and ended."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO, Any, Final

from search_spaces.errors import UsageError
from workers.protocol import Asked, Assignment, Cause, Event, Outcome, Report, StopRequest
from workers.run import Objective

from .devices import environment_of
from .gang import Gang, signal_name
from .pickling import pickle_objective
from .process_worker import News, Ready

POLL_SECONDS: Final = 0.1  # between two looks at whether a worker has died or hangs
EXIT_SECONDS: Final = 1.0  # for the system to end a killed process
MAX_MESSAGES: Final = 64  # taken from one worker before the others have their turn
# The modules of this process are found at the same places; a name that `ps` shows comes first.
_BOOT: Final = (
    "import sys; name, *given = sys.argv[1:7]; sys.path[:], sys.argv[:] = sys.argv[7:], [name]; "
    "from workers.runtime.process_worker import main; main(*given)"
)


class ObjectiveFile:
    """What workers run, as an open file without a name: a large objective is written once.

    Args:
        objective: the user's; None if a workload is run.

    Raises:
        UsageError: the objective cannot be pickled.
    """

    def __init__(self, objective: Callable[[Any], Any] | None) -> None:
        self._file: IO[bytes] | None = None
        if objective is not None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115
            self._file.write(pickle_objective(objective))
            self._file.flush()

    @property
    def descriptor(self) -> int:
        """Of the file; -1 if there is no objective."""
        return -1 if self._file is None else self._file.fileno()

    def close(self) -> None:
        """Free the file; workers that have been started keep their own."""
        if self._file is not None:
            self._file.close()


class WorkerProcess:
    """A warm worker in a new Python process, in a session of its own.

    It ends together with this process. It does not import this process's `__main__`.

    Args:
        name: shown by `ps`.
        objective: what it runs, if there is no workload.
        workload: name of the workload; None if there is an objective.
        threads: CPU threads of the process; gpus: its GPUs.
        environment: variables that differ from this process's.

    Attributes:
        ready: whether it has said that it can run attempts.
        closed: whether it was killed by this process.
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
        ours, theirs = socket.socketpair()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (until its first attempt)
        numbers = [theirs.fileno(), objective.descriptor]
        arguments = [name, *map(str, numbers), workload or "", str(threads), str(gpus)]
        folders = [str(Path(folder).absolute()) for folder in sys.path]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, *arguments, *folders],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                env={**os.environ, **environment},
                pass_fds=[number for number in numbers if number >= 0],
                start_new_session=True,  # the controller handles Ctrl-C
            )
        self.connection = Connection(ours.detach())
        self.ready = False
        self.closed = False
        self._garbled = False  # it has sent what is no message

    def run(self, assignment: Assignment, rank: int, rendezvous: str) -> None:
        """See `WorkerHandle`."""
        self._send("run", assignment, rank, rendezvous)

    def stop(self, trial: int, attempt: int, how: StopRequest) -> None:
        """See `WorkerHandle`."""
        self._send("stop", trial, attempt, how)

    def dump(self, assignment: Assignment, rank: int) -> None:
        """See `WorkerHandle`."""
        self._send("dump", assignment, rank)

    def kill(self) -> None:
        """End the process, and those of its process group, which the objective has started."""
        if self.closed:
            return
        self.closed = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(EXIT_SECONDS)
        self.connection.close()
        self._output.close()

    @property
    def has_ended(self) -> bool:
        """Whether the process is dead and all that it has sent was received."""
        return self._process.poll() is not None and not self.connection.poll()

    def receive(self) -> Ready | News | None:
        """The next message; None if the worker is dead, or sends what cannot be read."""
        try:
            message = self.connection.recv()
        except (EOFError, OSError):
            return None
        except Exception:  # the objective shares the worker's process and can write to its socket
            message = None
        if not isinstance(message, Ready | News):
            self._garbled = True
            return None
        self.ready = True
        return message

    def death(self) -> str:
        """How the process died, or why it must be killed, for a person."""
        if self._garbled:
            return f"the worker (process {self._process.pid}) sent a message that cannot be read"
        try:
            status = self._process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return f"the worker (process {self._process.pid}) closed its connection"
        how = f"ended with exit status {status}"
        if status < 0:
            how = f"was killed by signal {-status} ({signal_name(-status)})"
        return f"the worker (process {self._process.pid}) {how}"

    @property
    def facts_of_death(self) -> dict[str, Any]:
        """How the process died, for `Gang.lose`; call it after `death` and before `kill`."""
        status = None if self._garbled else self._process.poll()
        cause = Cause.LOST
        if status is not None:
            outside = -status in (signal.SIGKILL, signal.SIGTERM)
            ended = Cause.EXITED if status >= 0 else Cause.SIGNALLED
            cause = Cause.KILLED if outside else ended
        by_sigkill = status == -signal.SIGKILL
        return {"cause": cause, "exit_status": status, "by_sigkill": by_sigkill}

    def last_words(self) -> str:
        """The last line that the process has printed before its first attempt."""
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").split("\n")
        return next((line.strip()[:500] for line in reversed(lines) if line.strip()), "")

    def _send(self, *request: object) -> None:
        with contextlib.suppress(OSError):  # it has died, which is noticed by the next poll
            self.connection.send(request)


def receive_all(
    workers: Sequence[WorkerProcess], timeout: float
) -> list[tuple[int, Ready | News | None]]:
    """Wait for messages of workers.

    Args:
        workers: of which each is listened to.
        timeout: seconds to wait, at most.

    Returns:
        The index of a worker and its message, in order; None for one that has died.
    """
    found: list[tuple[int, Ready | News | None]] = []
    indices = {w.connection: index for index, w in enumerate(workers) if not w.closed}
    for connection in wait(list(indices), timeout):
        index = indices[connection]  # type: ignore[index]
        worker = workers[index]
        for _ in range(MAX_MESSAGES):
            message = worker.receive()
            found.append((index, message))
            if message is None or not worker.connection.poll():
                break
    heard = {index for index, _ in found}
    silent = [index for index in indices.values() if index not in heard]
    return found + [(index, None) for index in silent if workers[index].has_ended]


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
    file = ObjectiveFile(objective if assignment.workload is None else None)
    workers = [
        WorkerProcess(
            f"{assignment.sweep} trial {assignment.trial} rank {rank}",
            file,
            assignment.workload,
            assignment.threads,
            environment_of(rank, assignment.gpus, gpus),
            assignment.gpus,
        )
        for rank in range(assignment.num_ranks)
    ]
    gang = Gang(assignment, workers)
    try:
        stopping = False
        while gang.outcome is None:
            for rank, message in receive_all(workers, POLL_SECONDS):
                for event in _events(gang, rank, message, workers[rank]):
                    if isinstance(event, Report | Asked):
                        send(event)
            gang.watch()
            if not stopping and (request := stop_requested()) is not None:
                stopping = True
                gang.stop(request)
        return gang.outcome
    finally:
        for worker in workers:
            worker.kill()
        gang.close()
        file.close()


def _events(
    gang: Gang, rank: int, message: Ready | News | None, worker: WorkerProcess
) -> list[Event]:
    if message is None:
        death, known = worker.death(), worker.facts_of_death
        worker.kill()  # the processes that it has started may still run
        return gang.lose(rank, death, **known)
    if isinstance(message, News):
        return gang.receive(rank, message.events, message.heartbeat)
    if message.broken:
        raise UsageError(f"the processes cannot load what they are to run: {message.broken}")
    return []
