"""The process of one rank of one attempt: it runs the rank and ends.

The main thread runs the rank; a thread receives requests, and another sends events and heartbeats,
so a report costs the trial microseconds and reaches the controller a millisecond later.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import psutil

from search_spaces.errors import StoreError
from workers.context import Context
from workers.protocol import (
    LOGS,
    Assignment,
    Event,
    Started,
    StopRequest,
    log_name,
    open_log,
)
from workers.run import run

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from workers.files.folder import Folder

TAKE_SECONDS: Final = 1.0  # the longest time between two heartbeats
OOM_SCORE: Final = 500  # of 1000; that of a controller is 0
LOG_BYTES: Final = 64 << 20
_DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG


class News(NamedTuple):
    """Events of a rank that runs, with a sign of life.

    `idle_seconds` is the time since its last step or report, `steps` the number of its steps so
    far; a step ends when the rank polls for a stop request.
    """

    events: list[Event]
    idle_seconds: float
    steps: int


class Child:
    """Runs one rank. `run` is called in the main thread.

    Args:
        pipe: to the process that supervises the rank; what is to be run comes first.
        load: returns the user's objective, or None if a workload is run.
        tell_imported: called now and then, and at the end, for the parent.
    """

    def __init__(
        self, pipe: Connection, load: Callable[[], Any], tell_imported: Callable[[], None]
    ) -> None:
        self._pipe, self._load, self._tell_imported = pipe, load, tell_imported
        self._mail: deque[Event] = deque()
        self._arrived, self._sending = threading.Event(), threading.Lock()
        self._stop_request: StopRequest | None = None
        self._moved = time.monotonic()
        self._steps = 0
        self._preempted = False
        self._meeting = ""

    def run(self) -> NoReturn:
        """Wait for a rank, run it to its end, tell its outcome, and end this process."""
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        with suppress(OSError):  # the kernel kills it before the controller if memory runs out
            Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))
        try:
            assignment, rank, self._meeting = self._pipe.recv()
            self._send_all()  # the first sign of life
            self._run_rank(assignment, rank)
            self._send_all()
            while assignment.num_ranks > 1:  # the others may still meet at this process
                signal.pause()
            os._exit(0)
        except BaseException:  # such as that nobody waits for it any more
            traceback.print_exc()
        os._exit(1)

    def _run_rank(self, a: Assignment, rank: int) -> None:
        """Run the rank; its output, and that of what it starts, goes to its log."""
        signal.signal(signal.SIGTERM, self._on_sigterm)
        # What the objective forks ends as any other process.
        os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
        with suppress(OSError, StoreError), open_log(a, rank) as log:  # `run` says what is wrong
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        faulthandler.register(signal.SIGQUIT)  # writes the stacks of an attempt that hangs
        print(f"{a.label} (its seed is {a.seed})")
        logs, name = a.files / LOGS, log_name(a.attempt, rank)
        for work in (self._receive, lambda: self._send(logs, name)):
            threading.Thread(target=work, name="automl", daemon=True).start()
        objective = self._load()
        _limit_threads(a.threads)
        if rank == 0:
            self._post(Started(a.trial, a.attempt, f"{socket.gethostname()}:{os.getpid()}"))
        self._context = Context(  # other ranks may still be leaving its meeting
            a,
            send=self._post if rank == 0 else lambda report: None,
            stop_requested=self._stop_requested,
            rank=rank,
            world_size=a.num_ranks,
            rendezvous=self._meeting,
            device="cuda:0" if a.gpus > 0 else "cpu",
        )
        outcome = run(self._context, objective)
        if self._preempted and not outcome.message:
            outcome = replace(outcome, message="the machine of its worker is being taken away")
        _flush()
        shorten(logs, name)
        self._tell_imported()
        self._post(outcome)

    def _receive(self) -> None:
        """Take requests to stop. If the controller is gone, end with all that runs here."""
        with suppress(EOFError, OSError):
            while True:
                self._stop_request = self._pipe.recv()
        if self._meeting.startswith("file://"):
            Path(self._meeting.removeprefix("file://")).unlink(missing_ok=True)
        end_session(os.getpid())

    def _send(self, logs: Folder, name: str) -> None:
        with suppress(OSError):  # the controller is gone, or the objective has closed the pipe
            while True:
                self._arrived.wait(TAKE_SECONDS)
                self._arrived.clear()
                self._send_all()
                self._tell_imported()
                shorten(logs, name)

    def _send_all(self) -> None:
        with self._sending:
            events = [self._mail.popleft() for _ in range(len(self._mail))]
            self._pipe.send(News(events, time.monotonic() - self._moved, self._steps))

    def _post(self, event: Event) -> None:
        self._moved = time.monotonic()
        self._mail.append(event)
        self._arrived.set()

    def _stop_requested(self) -> StopRequest | None:
        self._moved = time.monotonic()
        self._steps += 1
        return self._stop_request or (StopRequest.INTERRUPT if self._preempted else None)

    def _on_sigterm(self, *_: Any) -> None:
        """The machine is about to be taken away: ask the attempt to stop with a checkpoint."""
        self._preempted = True


def _limit_threads(threads: int) -> None:
    """Let the libraries that the parent has loaded on one thread use those of this rank."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
    if threads > 1:
        import threadpoolctl

        threadpoolctl.threadpool_limits(threads)


def _flush() -> None:
    """Write what Python and C keep back of this process's output."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # an objective may have closed it
            stream.flush()
    ctypes.CDLL(None).fflush(None)


def shorten(folder: Folder, name: str, most: int = LOG_BYTES) -> None:
    """Cut the middle out of a file that is longer than `most` bytes.

    The first half of `most` and the newest quarter stay. Those who append to the file go on behind
    them; what they write in the moment of the cut is lost. Does nothing if the file cannot be
    changed.
    """
    with (
        suppress(OSError, StoreError),
        folder.open(name, "rb") as old,
        folder.open(name, "ab") as new,
    ):
        size = os.fstat(old.fileno()).st_size
        if size > most:
            old.seek(size - most // 4)
            newest = old.read()
            os.truncate(new.fileno(), most // 2)
            new.write(b"\n... the middle of this log is left out ...\n" + newest)


def end_session(leader: int) -> None:
    """Kill a process that leads a session, and all of its session: programs have their own groups.

    The leader ends last, so that nobody else gets its number before.
    """
    killed = {leader}
    while found := {pid for pid in psutil.pids() if _session(pid) == leader} - killed:
        killed |= found
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    with suppress(OSError):
        os.kill(leader, signal.SIGKILL)


def _session(pid: int) -> int | None:
    with suppress(OSError):
        return os.getsid(pid)
    return None
