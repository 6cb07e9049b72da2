"""A gang of local processes without Ray, for the inline dispatcher, debugging and tests."""

import faulthandler
import multiprocessing
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from workers.context import Context
from workers.protocol import (
    Assignment,
    Ending,
    Heartbeat,
    Outcome,
    Report,
    StopRequest,
    lost,
    open_log,
)
from workers.run import Objective, combine, run

from .logs import bounded_log
from .supervision import HangDetector, oom_kills

_POLL_SECONDS = 0.1
_GRACE_SECONDS = 3.0  # for the other ranks to send their outcome after one has failed
_EXIT_SECONDS = 1.0  # for processes to exit by themselves
_DUMP = "dump"


def run_gang(
    assignment: Assignment,
    send: Callable[[Report], None],
    stop_requested: Callable[[], StopRequest | None],
    objective: Objective | None = None,
) -> Outcome:
    """Run an assignment of n ranks as n processes of this machine.

    The ranks meet at a file in the trial's folder. One rank that fails, dies or hangs ends all.
    The output of a rank goes to `<folder>/logs/attempt-<a>-rank-<r>.log`. The ranks end with this
    process.

    Args:
        assignment: the attempt; if `gpus` is above 0, rank r has the device cuda:r.
        send: receives the reports of rank 0.
        stop_requested: polled about every 0.1 s.
        objective: the user's, if the assignment names no workload; a new process must be able to
            import it.
    """
    gang = _LocalGang(assignment, objective)
    try:
        gang.watch(send, stop_requested)
    finally:
        gang.close()
    return gang.outcome()


class _LocalGang:
    """The processes of one attempt."""

    def __init__(self, assignment: Assignment, objective: Objective | None) -> None:
        self.assignment = assignment
        self._oom_kills = oom_kills()
        assignment.files.make()
        self.rendezvous = Path(assignment.folder) / f".rendezvous-{uuid.uuid4().hex}"
        self.outcomes: dict[int, Outcome] = {}
        self.pipes: dict[int, Connection] = {}
        self.processes: list[Any] = []
        spawn = multiprocessing.get_context("spawn")
        self.hangs = HangDetector(assignment.limits.timeout_seconds)
        self.heartbeats = [spawn.Array("d", 2, lock=False) for _ in range(assignment.num_ranks)]
        url = f"file://{self.rendezvous}" if assignment.num_ranks > 1 else ""
        for rank, heartbeat in enumerate(self.heartbeats):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(
                target=_rank, args=(assignment, rank, url, theirs, heartbeat, objective)
            )
            process.start()
            theirs.close()
            self.processes.append(process)
            self.pipes[rank] = ours

    def watch(
        self, send: Callable[[Report], None], stop_requested: Callable[[], StopRequest | None]
    ) -> None:
        """Pass messages on until every rank has ended, or until some time after one has failed."""
        stopping = False
        deadline: float | None = None
        while len(self.outcomes) < len(self.processes) and (
            deadline is None or time.monotonic() < deadline
        ):
            waiting = {self.pipes[r]: r for r in self.pipes if r not in self.outcomes}
            for pipe in wait(list(waiting), timeout=_POLL_SECONDS):
                self._receive(waiting[pipe], send)  # type: ignore[index]
            if self._hang():
                return
            request = stop_requested()
            if request is not None and not stopping:
                stopping = True
                self._tell(request)
            if deadline is None and any(outcome.failure for outcome in self.outcomes.values()):
                deadline = time.monotonic() + _GRACE_SECONDS

    def _receive(self, rank: int, send: Callable[[Report], None]) -> None:
        try:
            message = self.pipes[rank].recv()
        except (EOFError, OSError):
            self.processes[rank].join()
            message = self._failed(rank, f"rank {rank} {_death(self.processes[rank].exitcode)}")
        if isinstance(message, Outcome):
            self.outcomes[rank] = message
            self.hangs.ended(rank)
        else:
            send(message)

    def _hang(self) -> bool:
        """Whether no rank moves. If so, the ranks write their stacks and the attempt has failed."""
        for rank, (steps, moved) in enumerate(self.heartbeats):
            if not moved:
                return False  # the process is still starting
            self.hangs.record(rank, Heartbeat(time.monotonic() - moved, int(steps)))
        if not self.hangs.hangs:
            return False
        self._tell(_DUMP)
        time.sleep(_EXIT_SECONDS)
        self.outcomes = {0: lost(self.assignment, self.hangs.message(), failure="timeout")}
        return True

    def _failed(self, rank: int, message: str) -> Outcome:
        a = self.assignment
        failure = "out_of_memory" if oom_kills() > self._oom_kills else "crashed"
        return Outcome(a.trial, a.attempt, Ending.FAILED, failure=failure, message=message)

    def _tell(self, word: StopRequest | str) -> None:
        for rank, pipe in self.pipes.items():
            if rank not in self.outcomes:
                try:
                    pipe.send(word)
                except OSError:
                    continue  # the rank has just ended; its outcome is on the way

    def outcome(self) -> Outcome:
        """The outcome of the attempt; call it after `close`."""
        combined = combine([self.outcomes[rank] for rank in sorted(self.outcomes)])
        dead = [
            o for o in self.outcomes.values() if o.failure == "crashed" and "killed by" in o.message
        ]
        return combine(dead) if dead and combined.failure == "crashed" else combined

    def close(self) -> None:
        """End every process and remove the rendezvous file."""
        for pipe in self.pipes.values():
            pipe.close()
        deadline = time.monotonic() + _EXIT_SECONDS
        for process in self.processes:
            process.join(timeout=max(0.0, deadline - time.monotonic()))
        for process in self.processes:
            if process.is_alive():
                process.kill()
                process.join()
        self.rendezvous.unlink(missing_ok=True)


def _death(code: int | None) -> str:
    return (
        f"was killed by signal {-code}"
        if code is not None and code < 0
        else f"ended with exit status {code}"
    )


def _rank(
    assignment: Assignment,
    rank: int,
    rendezvous: str,
    pipe: Connection,
    heartbeat: Any,
    objective: Objective | None,
) -> None:
    """The main function of one process; `heartbeat` holds its number of steps and the last time."""
    with open_log(assignment, rank) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    requests: list[StopRequest] = []
    heartbeat[1] = time.monotonic()
    threading.Thread(target=_listen, args=(pipe, requests), daemon=True).start()

    def stop_requested() -> StopRequest | None:
        heartbeat[0] += 1
        heartbeat[1] = time.monotonic()
        return requests[-1] if requests else None

    context = Context(
        assignment,
        send=pipe.send if rank == 0 else lambda report: None,
        stop_requested=stop_requested,
        rank=rank,
        world_size=assignment.num_ranks,
        rendezvous=rendezvous,
        device=f"cuda:{rank}" if assignment.gpus > 0 else "cpu",
    )
    with bounded_log(assignment, rank):
        outcome = run(context, objective)
        sys.stdout.flush()
    pipe.send(outcome)


def _listen(pipe: Connection, requests: list[StopRequest]) -> None:
    """Receive stop requests of the parent process; exit if the parent is gone."""
    while True:
        try:
            word = pipe.recv()
            if word == _DUMP:
                print("the attempt hangs; the stacks of its threads are", flush=True)
                faulthandler.dump_traceback()
            else:
                requests.append(word)
        except (EOFError, OSError):
            os._exit(1)
