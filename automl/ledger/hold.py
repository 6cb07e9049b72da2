"""The process that holds a sweep, and writes its log: the row in `SWEEPS` says which, until when.

On a SQLite file it has the lock of the sweep's folder too, which the kernel frees when it ends.
"""

import fcntl
import json
import logging
import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

import sqlalchemy as sa

from automl.core import SweepEvent, SweepState, Trial, TrialEvent
from automl.core.arguments import compact_json
from automl.errors import StoreError
from workers.files import Folder

from .database import (
    SWEEPS,
    Database,
    HeldError,
    LogRecord,
    Sweep,
    append,
    apply,
    records_after,
    rows_of,
)

STALE_SECONDS: Final = 60.0  # without a heartbeat: then a holder on another host is dead


def locked(folder: Folder, name: str) -> IO[bytes] | None:
    """A file in a folder of the store, locked until it is closed; None if another has the lock."""
    folder.make()
    file: IO[bytes] = folder.file(name).open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def process_started(pid: int) -> float | None:
    """Start of a process, independent of clock changes; None if there is no such process."""
    try:
        return float(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return None


def holder_alive(sweep: Sweep) -> bool:
    """Whether a process holds the sweep and still runs; on another host its heartbeat decides."""
    if not sweep.held:
        return False
    if sweep.host != socket.gethostname():
        return bool(sweep.now - sweep.heartbeat < STALE_SECONDS)
    started, known = process_started(sweep.pid), sweep.process_started
    return started is not None and (known is None or abs(started - known) < 2)


def shown_state(sweep: Sweep) -> str:
    """The state of a sweep that people see; without a holder, how its last one ended its run."""
    if sweep.held:
        return "running" if holder_alive(sweep) else "interrupted"
    return str(sweep.closed)


def refusal(sweep: Sweep) -> HeldError:
    """The error for who comes second."""
    # Who has the lock of the folder writes the row a moment later.
    brief = bool(sweep.fence) and (
        json.loads(sweep.status).get("brief", False) or not holder_alive(sweep)
    )
    who = f"process {sweep.pid} on {sweep.host}" if sweep.fence else "another process"
    what = f"wait for it, or stop it with `automl stop {sweep.name}`"
    if sweep.fence and (sweep.host, sweep.pid) == (socket.gethostname(), os.getpid()):
        who += ", this one"
        what = "call close() on the earlier Optimizer, or make it in a `with` block"
    return HeldError(f"sweep {sweep.name!r} is held by {who}: {what}", brief=brief)


class Hold:
    """The hold of this process on a sweep: `commit` appends events to its log in one transaction.

    A larger fencing number in the database ends the hold. Made in the transaction that takes it.

    Args:
        database: of the store; connection: in a transaction.
        before: the row of the sweep, which is locked.
        state: of the sweep.
        lock: of a SQLite file; None for a server and in memory.
        brief: the sweep is held for a moment only.

    Attributes:
        state: with the events that were applied and those that others have recorded.
        taken: number of the last record when the sweep was taken.
        seconds: wall-clock seconds of the sweep, as they were last committed.
        earlier_state: of the sweep before it was taken, as people saw it.
        uncommitted: events that wait for a commit.
    """

    def __init__(
        self,
        database: Database,
        connection: sa.Connection,
        before: Sweep,
        state: SweepState,
        lock: IO[bytes] | None,
        *,
        brief: bool = False,
    ) -> None:
        self.state, self.sweep = state, before
        self.taken: int = before.last
        self.seconds: float = before.seconds
        self.earlier_state = shown_state(before)
        self.uncommitted: list[SweepEvent] = []
        self._database, self._lock = database, lock
        self._fence = before.fence + 1
        self._tried: set[tuple[int, int]] = set()  # records of a commit without an answer
        self._connection = database.connection()
        self._clock_ahead: float = before.now - time.time()  # of the store's clock, before ours
        values = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "process_started": process_started(os.getpid()),
            "heartbeat": before.now,
            "fence": self._fence,
            "held": 1,
            "commits": 0,
            "status": compact_json({"brief": True} if brief else {}),
        }
        connection.execute(sa.update(SWEEPS).where(SWEEPS.c.id == before.id).values(values))

    def apply(self, event: SweepEvent) -> Trial | None:
        """Queue an event for the next commit; the trial after it, None if it changes none.

        An event that changes nothing about its trial (a duplicate, or late) is not queued.
        """
        after = self.state.apply(event)
        if after is not None or not isinstance(event, TrialEvent):
            self.uncommitted.append(event)
        return after

    def commit(
        self, seconds: float | None = None, *, status: Mapping[str, Any] | None = None
    ) -> None:
        """Append the queued events, renew the hold, and take in what others have recorded.

        Act on an event only after its commit.

        Args:
            seconds: of the sweep so far.
            status: of the controller, for those who watch the sweep.

        Raises:
            StoreError: the store cannot be written to, or another process has taken the sweep
                over. The events stay queued.
        """
        values: dict[str, Any] = {"num_trials": len(self.state.trials), "closed": self.state.closed}
        if seconds is not None:
            values["seconds"] = self.seconds = float(seconds)
        if status is not None:
            values["status"] = compact_json(status)
        self._write(values)
        if self.uncommitted:  # they came after a commit whose answer was lost
            self._write(values)

    def look(self) -> None:
        """Take in what others have recorded since. It takes no lock."""
        if not self._tried:  # else the next commit tells which of these records are its own

            def read(connection: sa.Connection) -> list[LogRecord]:
                sweep = self._database.sweep(connection, self.sweep)
                return list(records_after(connection, sweep, self.state.number))

            apply(self.state, self._database.run(read))

    def clock(self) -> float:
        """Seconds since 1970 on the clock of the store, which all its users share."""
        return time.time() + self._clock_ahead

    def absence(self, until: float) -> float:
        """For how long nobody held the sweep before it was taken, up to `until` on that clock."""
        taken: float = self.sweep.now
        before = float(self.sweep.heartbeat) if self.sweep.fence else taken
        return max(0.0, min(taken, until) - before)

    def release(self) -> None:
        """Let another controller hold the sweep. If this cannot be written, the hold runs out."""
        clock = self._database.clock
        try:
            self._database.run(
                lambda connection: self._renew(connection, clock(connection), held=0), write=True
            )
        except StoreError as error:
            logging.getLogger(__name__).warning("%s", error)
        finally:
            self.forget()

    def forget(self) -> None:
        """Give the lock back and write nothing, such as if the sweep was deleted."""
        self._connection.close()
        if self._lock:
            self._lock.close()

    def _write(self, values: Mapping[str, Any]) -> None:
        unseen = self._database.run(
            lambda connection: self._write_once(connection, values), write=True
        )
        apply(self.state, [one for one in unseen if (one.number, one.sum) not in self._tried])
        del self.uncommitted[: len(self._tried)]
        self.state.number = max([self.state.number, *(number for number, _ in self._tried)])
        self._tried = set()

    def _write_once(
        self, connection: sa.Connection, values: Mapping[str, Any]
    ) -> Sequence[LogRecord]:
        """One try at a commit, after which `_tried` is stored; returns the records since a look."""
        sweep = self._database.sweep(connection, self.sweep, lock=True)
        self._clock_ahead = sweep.now - time.time()
        self._renew(connection, sweep.now, **values)
        unseen = list(records_after(connection, sweep, self.state.number))
        if self._tried.isdisjoint((one.number, one.sum) for one in unseen):
            rows = rows_of(sweep, self.uncommitted)
            self._tried = {(row["number"], row["sum"]) for row in rows}
            append(connection, rows)
        return unseen  # else they are stored, and only the answer was lost

    def _renew(self, connection: sa.Connection, now: float, **values: Any) -> None:
        """Set the heartbeat, count one commit, and change other columns."""
        table = SWEEPS.c
        mine = table.id == self.sweep.id, table.fence == self._fence, table.held == 1
        changed = {"heartbeat": now, "commits": table.commits + 1, **values}
        if not connection.execute(sa.update(SWEEPS).where(*mine).values(changed)).rowcount:
            raise StoreError(
                f"{self._database.name}: another controller has taken the sweep over; this one ends"
            )
