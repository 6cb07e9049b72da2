"""Several ranks of one trial as local processes, without Ray: for debugging, tests and the inline dispatcher."""

from __future__ import annotations

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
from workers.protocol import Assignment, Ending, Halt, Outcome, Pulse, Report, log_of, lost
from workers.run import Objective, combine, run

from .oom import oom_kills
from .supervision import Progress

_POLL_SECONDS = 0.1
_GRACE_SECONDS = 3.0  # for the other ranks to say what they saw after one has failed
_END_SECONDS = 1.0  # for processes to end by themselves
_DUMP = "dump"


def run_gang(
    assignment: Assignment,
    send: Callable[[Report], None],
    halted: Callable[[], Halt | None],
    objective: Objective | None = None,
) -> Outcome:
    """Run an assignment of n ranks as n processes of this machine that meet at a file of the trial's folder.

    One rank that fails, dies or hangs ends all. What a rank prints is in `<folder>/logs/attempt-<a>-rank-<r>.log`.
    The ranks end when this process does.

    Args:
        assignment: what to run; `gpus` above 0 gives rank r the device cuda:r.
        send: takes the reports of rank 0.
        halted: asked about every tenth of a second.
        objective: importable by a new process, where the assignment names no workload.
    """
    gang = _Gang(assignment, objective)
    try:
        gang.watch(send, halted)
    finally:
        gang.close()
    return gang.outcome()


class _Gang:
    """The processes of one attempt."""

    def __init__(self, assignment: Assignment, objective: Objective | None) -> None:
        self.assignment, self.begun = assignment, time.monotonic()
        self._oom_kills = oom_kills()
        folder = Path(assignment.folder)
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        self.meeting = folder / f".rendezvous-{uuid.uuid4().hex}"
        self.outcomes: dict[int, Outcome] = {}
        self.pipes: dict[int, Connection] = {}
        self.processes: list[Any] = []
        spawn = multiprocessing.get_context("spawn")
        self.progress = Progress(assignment.limits.timeout_seconds)
        self.pulses = [spawn.Array("d", 2, lock=False) for _ in range(assignment.num_ranks)]
        for rank, pulse in enumerate(self.pulses):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(
                target=_rank, args=(assignment, rank, str(self.meeting), theirs, pulse, objective)
            )
            process.start()
            theirs.close()
            self.processes.append(process)
            self.pipes[rank] = ours

    def watch(self, send: Callable[[Report], None], halted: Callable[[], Halt | None]) -> None:
        """Pass messages on until every rank has ended, or one has failed and the grace is over."""
        told, deadline = False, None
        while len(self.outcomes) < len(self.processes) and (
            deadline is None or time.monotonic() < deadline
        ):
            waiting = {self.pipes[r]: r for r in self.pipes if r not in self.outcomes}
            for pipe in wait(list(waiting), timeout=_POLL_SECONDS):
                self._receive(waiting[pipe], send)  # type: ignore[index]
            if self._hangs():
                return
            halt = halted()
            if halt is not None and not told:
                told = True
                self._tell(halt)
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
            self.progress.ended(rank)
        else:
            send(message)

    def _hangs(self) -> bool:
        """Whether no rank moves; then the ranks write where they are, and the attempt has failed."""
        for rank, (steps, moved) in enumerate(self.pulses):
            if moved:
                self.progress.note(rank, Pulse(time.monotonic() - moved, int(steps)))
            else:
                return False  # it is still being started
        if not self.progress.hangs:
            return False
        self._tell(_DUMP)
        time.sleep(_END_SECONDS)
        self.outcomes = {0: lost(self.assignment, self.progress.message(), failure="timeout")}
        return True

    def _failed(self, rank: int, message: str) -> Outcome:
        a = self.assignment
        failure = "out_of_memory" if oom_kills() > self._oom_kills else "crashed"
        return Outcome(a.trial, a.attempt, Ending.FAILED, failure=failure, message=message)

    def _tell(self, word: Halt | str) -> None:
        for rank, pipe in self.pipes.items():
            if rank not in self.outcomes:
                try:
                    pipe.send(word)
                except OSError:
                    continue  # it has just ended; its outcome is on the way

    def outcome(self) -> Outcome:
        """The outcome of the attempt; call after `close`."""
        combined = combine([self.outcomes[rank] for rank in sorted(self.outcomes)])
        dead = [
            o for o in self.outcomes.values() if o.failure == "crashed" and "killed by" in o.message
        ]
        if dead and combined.failure == "crashed":
            combined = combine(dead)
        return combined

    def close(self) -> None:
        """End every process and remove the meeting file."""
        for pipe in self.pipes.values():
            pipe.close()
        deadline = time.monotonic() + _END_SECONDS
        for process in self.processes:
            process.join(timeout=max(0.0, deadline - time.monotonic()))
        for process in self.processes:
            if process.is_alive():
                process.kill()
                process.join()
        self.meeting.unlink(missing_ok=True)


def _death(code: int | None) -> str:
    return (
        f"was killed by signal {-code}"
        if code is not None and code < 0
        else f"ended with exit status {code}"
    )


def _rank(
    assignment: Assignment,
    rank: int,
    meeting: str,
    pipe: Connection,
    pulse: Any,
    objective: Objective | None,
) -> None:
    """The life of one process; `pulse` holds how often it has looked for orders, and when it last did."""
    descriptor = os.open(log_of(assignment, rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    asked: list[Halt] = []
    pulse[1] = time.monotonic()
    threading.Thread(target=_listen, args=(pipe, asked), daemon=True).start()

    def halted() -> Halt | None:
        pulse[0], pulse[1] = pulse[0] + 1, time.monotonic()
        return asked[-1] if asked else None

    context = Context(
        assignment,
        send=pipe.send if rank == 0 else lambda report: None,
        halted=halted,
        rank=rank,
        world_size=assignment.num_ranks,
        rendezvous=f"file://{meeting}" if assignment.num_ranks > 1 else "",
        device=f"cuda:{rank}" if assignment.gpus > 0 else "cpu",
    )
    outcome = run(context, objective)
    sys.stdout.flush()
    pipe.send(outcome)


def _listen(pipe: Connection, asked: list[Halt]) -> None:
    """Take halts from the parent; when it is gone, this process has nobody to work for."""
    while True:
        try:
            word = pipe.recv()
            if word == _DUMP:
                print("the attempt hangs; this is where its threads are", flush=True)
                faulthandler.dump_traceback()
            else:
                asked.append(word)
        except (EOFError, OSError):
            os._exit(1)
