"""The process of one rank of one attempt: it runs the rank and ends.

The main thread runs the rank; a thread receives requests, and another sends events and heartbeats,
so a report costs the trial microseconds and reaches the controller a millisecond later.
"""

from __future__ import annotations

import ctypes
import errno
import faulthandler
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, NamedTuple

import psutil

from search_spaces.errors import StoreError
from workers.protocol import (
    Assignment,
    Ending,
    Event,
    Heartbeat,
    Outcome,
    Started,
    StopRequest,
    lost,
    open_log,
)

from .logs import bounded_log, redirect

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from .parent import Target

TAKE_SECONDS: Final = 1.0  # the longest time between two heartbeats
OOM_SCORE: Final = 500  # of 1000; see `workers.runtime.parent`
_DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG


class News(NamedTuple):
    """Events of a rank that runs, with a heartbeat."""

    events: list[Event]
    heartbeat: Heartbeat


class Broken(NamedTuple):
    """What is to be run cannot be loaded, and `why`."""

    why: str


class Child:
    """Runs one rank. `run` is called in the main thread.

    Args:
        pipe: to the process that supervises the rank; it sends the assignment first.
        target: what is run.
        tell_imported: called now and then, and at the end, for the parent.
    """

    def __init__(self, pipe: Connection, target: Target, tell_imported: Callable[[], None]) -> None:
        self._pipe, self._target, self._tell_imported = pipe, target, tell_imported
        self._mail: deque[Event] = deque()
        self._arrived, self._sending = threading.Condition(), threading.Lock()
        self._stop_request: StopRequest | None = None
        self._moved = time.monotonic()
        self._steps = 0
        self._preempted = False
        self._meeting = ""
        self._process = os.getpid()

    def run(self) -> None:
        """Run the rank to its end, tell its outcome, and end this process."""
        set_oom_score(OOM_SCORE)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        try:
            _, assignment, rank, self._meeting = self._pipe.recv()
            self._send_all()  # the first sign of life
            signal.signal(signal.SIGTERM, self._on_sigterm)
            threading.Thread(target=self._receive, name="automl-receive", daemon=True).start()
            self._target.load()
            if self._target.broken:
                self._pipe.send(Broken(self._target.broken))
                os._exit(1)
            threading.Thread(target=self._send, name="automl-send", daemon=True).start()
            _limit_threads(self._target.threads)
            if rank == 0:
                key = (assignment.trial, assignment.attempt)
                self._post(Started(*key, f"{socket.gethostname()}:{os.getpid()}"))
            outcome = self._outcome(assignment, rank)
            self._tell_imported()
            self._post(outcome)
            self._send_all()
            while assignment.num_ranks > 1:  # the others may still meet at this process
                signal.pause()
        except (EOFError, BrokenPipeError, ConnectionResetError):  # nobody waits for it any more
            os._exit(1)
        except BaseException:  # such as a log that cannot be written
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def _outcome(self, a: Assignment, rank: int) -> Outcome:
        """Run the rank; its output goes to its log."""
        from workers.context import Context
        from workers.failures import failure_of
        from workers.run import run

        self._context = context = Context(  # other ranks may still be leaving its meeting
            a,
            send=self._post if rank == 0 else lambda report: None,
            stop_requested=self._stop_requested,
            rank=rank,
            world_size=a.num_ranks,
            rendezvous=self._meeting,
            device="cuda:0" if a.gpus > 0 else "cpu",
        )
        try:
            with logged(a, rank):
                outcome = run(context, self._target.objective)
        except StoreError as error:  # an earlier attempt has put a link into its folder
            failure, message = failure_of(error)
            kind = type(error).__name__
            return Outcome(a.trial, a.attempt, Ending.FAILED, {}, failure, message, exception=kind)
        except OSError as error:  # the trial is not to blame if there is no room
            return lost(a, f"its log cannot be opened: {error}")
        if not self._preempted:
            return outcome
        message = outcome.message or "the machine of its worker is being taken away"
        return replace(outcome, message=message)

    def _receive(self) -> None:
        while True:
            try:
                verb, *arguments = self._pipe.recv()
            except (EOFError, OSError):
                self._end_with_children()
            if verb == "stop":
                self._stop_request = arguments[0]
            elif verb == "dump":
                _dump(*arguments)

    def _end_with_children(self) -> None:
        """The controller is gone: end, with all processes that the objective has started."""
        if self._meeting.startswith("file://"):
            Path(self._meeting.removeprefix("file://")).unlink(missing_ok=True)
        end_session(os.getpid())

    def _send(self) -> None:
        while True:
            with self._arrived:
                self._arrived.wait_for(lambda: self._mail, TAKE_SECONDS)
            try:
                self._send_all()
                self._tell_imported()
            except OSError as error:
                if error.errno == errno.EBADF:  # the objective has closed the connection
                    os._exit(1)
                return  # the controller is gone
            except Exception:  # such as no memory left to pickle them
                traceback.print_exc()
                os._exit(1)

    def _send_all(self) -> None:
        with self._sending:
            events = [self._mail.popleft() for _ in range(len(self._mail))]
            idle = time.monotonic() - self._moved
            self._pipe.send(News(events, Heartbeat(idle, self._steps)))

    def _post(self, event: Event) -> None:
        self._moved = time.monotonic()
        with self._arrived:
            self._mail.append(event)
            self._arrived.notify()

    def _stop_requested(self) -> StopRequest | None:
        self._moved = time.monotonic()
        self._steps += 1
        return self._stop_request or (StopRequest.INTERRUPT if self._preempted else None)

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        """The machine is about to be taken away: ask the attempt to stop with a checkpoint."""
        if os.getpid() != self._process:  # one that the objective has forked ends as any other
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self._preempted = True


def _limit_threads(threads: int) -> None:
    """Let the libraries that the parent has loaded on one thread use those of this rank."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
    if threads > 1 and ("numpy" in sys.modules or "torch" in sys.modules):
        import threadpoolctl

        threadpoolctl.threadpool_limits(threads)


def _dump(assignment: Assignment, rank: int) -> None:
    """Write the stack of each thread to the rank's log; works while the attempt hangs."""
    with open_log(assignment, rank) as log:
        log.write("the attempt hangs; the stacks of its threads are\n")
        log.flush()
        faulthandler.dump_traceback(log)


@contextmanager
def logged(assignment: Assignment, rank: int) -> Iterator[None]:
    """Send the output of this process, and of those that it starts, to the rank's log."""
    with open_log(assignment, rank) as log:
        redirect({1: log.fileno(), 2: log.fileno()})
    try:
        print(f"{assignment.label} (its seed is {assignment.seed})")
        with bounded_log(assignment, rank):
            yield
    finally:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        redirect({1: nowhere, 2: nowhere})
        os.close(nowhere)


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


def set_oom_score(least: int) -> None:
    """If memory runs out, the kernel kills a process with a high score before the controller."""
    place = Path("/proc/self/oom_score_adj")
    with suppress(OSError):
        place.write_text(str(max(least, int(place.read_text()))))
