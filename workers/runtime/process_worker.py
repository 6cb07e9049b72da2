"""The main function of a worker in a process of its own; `workers.runtime.processes` starts it.

A thread receives requests, another sends events and heartbeats, and the main thread runs ranks.
"""

import errno
import faulthandler
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple

from workers.protocol import Assignment, Event, Heartbeat, open_log

from .gang import TAKE_SECONDS
from .logs import bounded_log, redirect
from .worker import Worker

OOM_SCORE: Final = 500  # of 1000; that of a controller is 0


class Ready(NamedTuple):
    """The worker has loaded what it is to run.

    `broken` says why it cannot run anything, `gpu_problem` why its GPU cannot be used ("" if all is
    well).
    """

    broken: str
    gpu_problem: str = ""


class News(NamedTuple):
    """Events of a rank that runs, with a heartbeat."""

    events: list[Event]
    heartbeat: Heartbeat


def main(connection: str, objective: str, workload: str, threads: str, gpus: str) -> None:
    """Serve requests until the process that has started this one is gone.

    Args:
        connection: descriptor of a socket to the process that has started this one.
        objective: descriptor of a file with the pickled objective; below 0 if there is none.
        workload: name of the workload; "" if there is none.
        threads: CPU threads of this process.
        gpus: GPUs of this process.
    """
    faulthandler.enable()  # a segmentation fault writes its stack to the rank's log
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="replace", line_buffering=True)  # type: ignore[union-attr]
    _prefer_to_be_killed()
    os.set_inheritable(int(connection), False)
    pipe = Connection(int(connection))
    content = _content(int(objective)) if int(objective) >= 0 else None
    worker = Worker(content, workload or None, int(threads), logged, float(gpus))
    _ProcessWorker(pipe, worker).serve()


def _content(descriptor: int) -> bytes:
    """All of a file; other processes share the descriptor and its position."""
    size, content = os.fstat(descriptor).st_size, b""
    while len(content) < size:
        content += os.pread(descriptor, size - len(content), len(content))
    return content


def _prefer_to_be_killed() -> None:
    """If memory runs out, the kernel kills this process and not the controller, as Ray does it."""
    place = Path("/proc/self/oom_score_adj")
    with suppress(OSError):
        place.write_text(str(max(OOM_SCORE, int(place.read_text()))))


class _ProcessWorker:
    """A worker, its connection to the process that has started it, and their threads."""

    def __init__(self, pipe: Connection, worker: Worker) -> None:
        self._pipe = pipe
        self._runs: queue.SimpleQueue[tuple[Assignment, int, str]] = queue.SimpleQueue()
        self._worker = worker
        pipe.send(Ready(worker.broken, worker.gpu_problem))

    def serve(self) -> None:
        threading.Thread(target=self._receive, name="automl-receive", daemon=True).start()
        threading.Thread(target=self._send, name="automl-send", daemon=True).start()
        while True:
            try:
                self._worker.run(*self._runs.get())
            except BaseException:  # such as a log that cannot be written
                traceback.print_exc()
                os._exit(1)

    def _receive(self) -> None:
        meeting = ""
        while True:
            try:
                verb, *arguments = self._pipe.recv()
            except (EOFError, OSError):
                _end_with_children(meeting)
            if verb == "run":
                meeting = arguments[2]
                self._runs.put((arguments[0], arguments[1], arguments[2]))
            elif verb == "stop":
                self._worker.stop(*arguments)
            elif verb == "dump":
                self._worker.dump(*arguments)

    def _send(self) -> None:
        while True:
            events, heartbeat = self._worker.take(TAKE_SECONDS)
            if not events and not self._worker.is_running:
                continue
            try:
                self._pipe.send(News(events, heartbeat))
            except OSError as error:
                if error.errno == errno.EBADF:  # the objective has closed the connection
                    os._exit(1)  # whoever waits for it ends its children
                return  # the controller is gone
            except Exception:  # such as no memory left to pickle them
                traceback.print_exc()
                os._exit(1)


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


def _end_with_children(meeting: str) -> None:
    """The controller is gone: end, with all processes that the objective has started.

    Args:
        meeting: the address at which the ranks of the last attempt met; a file is removed.
    """
    if meeting:
        Path(meeting.removeprefix("file://")).unlink(missing_ok=True)
    try:
        os.killpg(os.getpid(), signal.SIGKILL)  # this process leads its group
    finally:
        os._exit(1)
