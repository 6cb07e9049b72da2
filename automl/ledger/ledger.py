"""Reads the sweeps of a database, follows one, creates and deletes them, holds one for writing.

The row in `SWEEPS` says which process holds a sweep and writes its log, and until when. On a SQLite
file it has the lock of the sweep's folder too, which the kernel frees when it ends.
"""

from __future__ import annotations

import fcntl
import gc
import json
import logging
import os
import socket
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import IO, Any, Final, TypeVar

import sqlalchemy as sa

from automl.core import (
    Answered,
    Command,
    Created,
    Snapshot,
    SweepEvent,
    SweepSpec,
    SweepState,
    Trial,
)
from automl.core.arguments import MAX_NAME, check_name, compact_json
from automl.errors import StoreError, UsageError
from search_spaces.plugins import nearest
from workers.files import Folder

from .database import (
    RECORDS,
    SWEEPS,
    Database,
    HeldError,
    LogRecord,
    Sweep,
    append,
    apply,
    damaged,
    locate,
    open_database,
    records_after,
    rows_of,
    translated,
)

T = TypeVar("T")
MAX_COMMANDS: Final = 1000  # the newest ones, that a follower keeps
MAX_BRIEF_SECONDS: Final = 60.0  # to wait for a process that holds a sweep for a moment
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


@dataclass(frozen=True)
class SweepInfo:
    """A sweep without its trials, a line of `automl list`.

    Args:
        state: as in `Snapshot`.
        created: in seconds since 1970; seconds: of all its runs.
        host, pid: of the controller that runs; "" and 0 if none does.
        version: another one after each commit of its controller and after each command.
    """

    name: str
    state: str
    created: float
    seconds: float
    num_trials: int
    host: str = ""
    pid: int = 0
    version: tuple[float, ...] = ()

    def line(self) -> dict[str, Any]:
        """The object that `automl list --json` prints."""
        names = ("name", "state", "created", "seconds", "num_trials")
        return {name: getattr(self, name) for name in names}


def _info(sweep: Sweep) -> SweepInfo:
    state = shown_state(sweep)
    host, pid = (sweep.host, sweep.pid) if state == "running" else ("", 0)
    facts = (sweep.name, state, sweep.created, sweep.seconds, sweep.num_trials, host, pid)
    version = (sweep.id, sweep.created, sweep.last, sweep.fence, sweep.commits, sweep.held)
    return SweepInfo(*facts, version)


class Follower:
    """One sweep as it was last read. `Ledger.follow` makes one; use it from one thread at a time.

    Args:
        database: of the store; name: of the sweep.

    Attributes:
        state: of the sweep; info: the same in a line.
        commands: the newest commands to the sweep, in order.
        events: that the latest `refresh` has read, if it did not read all of them.
        epoch: grows if the sweep was replaced by another one of its name.
    """

    info: SweepInfo

    def __init__(self, database: Database, name: str) -> None:
        self._database, self._name = database, name
        self._status: dict[str, Any] = {}  # further facts of the controller that runs
        self._known: tuple[int, float] | None = None  # its id and when it was created
        self.state = SweepState()
        self.commands: deque[Command] = deque(maxlen=MAX_COMMANDS)
        self.events: list[SweepEvent] = []
        self.epoch = 0

    def snapshot(self) -> Snapshot:
        """The sweep as it was last read."""
        return Snapshot.of(
            self.state,
            self.info.state,
            self.info.seconds,
            events=tuple(self.events),
            **self._status,
        )

    def refresh(self) -> Sequence[int]:
        """Read what is new; return the numbers of the trials that changed.

        Raises:
            StoreError: what was read is damaged, or the store cannot be read.
            UsageError: the sweep was deleted.
        """
        try:
            return read_sweep(self._database, self._name, self._read)
        except BaseException:
            self._known = None  # half of a change may be known
            raise

    def _read(self, connection: sa.Connection, sweep: Sweep) -> Sequence[int]:
        is_new = self._known != (sweep.id, sweep.created)
        if is_new:
            self.state = SweepState()
            self.commands.clear()
            self.epoch += 1
        self._known, self.info = (sweep.id, sweep.created), _info(sweep)
        self._status = json.loads(sweep.status) if self.info.state == "running" else {}
        records = list(records_after(connection, sweep, self.state.number))
        self.commands += [one.event for one in records if isinstance(one.event, Command)]
        self.events = [] if is_new else [one.event for one in records]
        return sorted(apply(self.state, records))


def read_sweep(database: Database, name: str, read: Callable[[sa.Connection, Sweep], T]) -> T:
    """What a function reads of a sweep, in one transaction; waits for a server that restarts.

    Raises:
        StoreError: what it reads is damaged.
        UsageError: there is no such sweep.
    """
    check_name(name)

    def find(connection: sa.Connection) -> list[T]:
        found = database.sweeps(connection, SWEEPS.c.name == name)
        return [read(connection, sweep) for sweep in found]

    collects = gc.isenabled()
    gc.disable()  # it would scan all rows again and again
    try:
        found = database.run(find)
    finally:
        if collects:
            gc.enable()
    if found:
        return found[0]
    names = [sweep.name for sweep in database.run(database.sweeps)]
    hint = nearest(name, names) if names else "it has no sweeps yet"
    raise UsageError(f"there is no sweep named {name!r} in {database.name}: {hint}")


class Hold:
    """The hold of this process on a sweep: `commit` appends its new events in one transaction.

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

    def commit(
        self, seconds: float | None = None, *, status: Mapping[str, Any] | None = None
    ) -> None:
        """Append what was applied to the state, renew the hold, and take in what others recorded.

        Act on an event only after its commit.

        Args:
            seconds: of the sweep so far.
            status: of the controller, for those who watch the sweep.

        Raises:
            StoreError: the store cannot be written to, or another process has taken the sweep
                over. The events still wait.
        """
        values: dict[str, Any] = {"num_trials": len(self.state.trials), "closed": self.state.closed}
        if seconds is not None:
            values["seconds"] = self.seconds = float(seconds)
        if status is not None:
            values["status"] = compact_json(status)
        self._write(values)
        if self.state.unrecorded:  # they came after a commit whose answer was lost
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
        del self.state.unrecorded[: len(self._tried)]
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
            rows = rows_of(sweep, self.state.unrecorded)
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


class Ledger:
    """The sweeps of a SQL database. Reading takes no lock, writing needs `hold`.

    Open one with `Ledger.open`. It may be used from any thread.
    """

    def __init__(self, database: Database, file: Path | None, folder: Path | None) -> None:
        self._database, self.name = database, database.name
        # In memory only the workers of a sweep make it.
        self._folder = folder or Path(tempfile.gettempdir(), f"automl-{uuid.uuid4().hex}")
        self._lockable = file is not None
        self._held: dict[str, Hold] = {}

    @classmethod
    def open(
        cls,
        location: str | os.PathLike[str] = ".automl",
        *,
        create: bool = False,
        readonly: bool = False,
    ) -> Ledger:
        """Open a store.

        Args:
            location: a folder (its SQLite file is `ledger.sqlite3`), a SQLAlchemy URL, or
                "sqlite://" for memory.
            create: make the store if there is none.
            readonly: refuse to write.

        Raises:
            StoreError: the store is missing, empty, damaged, of another schema, or cannot be read
                or written.
        """
        _, file, folder = locate(location)
        return cls(open_database(location, create=create, readonly=readonly), file, folder)

    def close(self) -> None:
        """Release every held sweep and close the connections."""
        for name in list(self._held):
            self.release(name)
        self._database.close()

    # reading

    def sweeps(self) -> list[SweepInfo]:
        """Every sweep, the newest one last."""
        return list(map(_info, self._database.run(self._database.sweeps)))

    def exists(self, sweep: str) -> bool:
        """Whether there is a sweep of that name."""
        return any(info.name == sweep for info in self.sweeps())

    def spec(self, sweep: str) -> SweepSpec:
        """The specification that the sweep has now."""
        return self.state(sweep).spec

    def state(self, sweep: str) -> SweepState:
        """The state of the sweep, which is the caller's own."""
        follower = self.follow(sweep)
        follower.refresh()
        return follower.state

    def trials(self, sweep: str) -> list[Trial]:
        """Every trial by number, with its reports."""
        return list(self.state(sweep).trials)

    def snapshot(self, sweep: str) -> Snapshot:
        """The sweep as it is now."""
        follower = self.follow(sweep)
        follower.refresh()
        return follower.snapshot()

    def follow(self, sweep: str) -> Follower:
        """A follower of the sweep; it reads nothing yet."""
        return Follower(self._database, sweep)

    def read(self, sweep: str, after: int = 0) -> list[LogRecord]:
        """The records of the log after one of this number, in order."""

        def read(connection: sa.Connection, found: Sweep) -> list[LogRecord]:
            return list(records_after(connection, found, after))

        return read_sweep(self._database, sweep, read)

    def events(self, sweep: str) -> list[SweepEvent]:
        """Every recorded event, in order."""
        return [record.event for record in self.read(sweep)]

    def answer(self, sweep: str, command: int) -> tuple[Answered | None, bool]:
        """The answer to a request, None if there is none yet; and whether a controller runs."""

        is_held = holder_alive(self._row(sweep))
        for _, _, event, _ in self.read(sweep, command):
            if isinstance(event, Answered) and event.command == command:
                return event, True
        return None, is_held

    def files(self, sweep: str) -> Folder:
        """The folder of the sweep's checkpoints and logs; it may not exist yet."""
        return Folder(self._folder, "sweeps", sweep)

    def check(self) -> None:
        """Read everything; raise StoreError if a page or a record is damaged or missing."""
        if not self._database.is_server:
            query = sa.text("PRAGMA integrity_check(1)")
            found = self._database.run(lambda connection: connection.scalar(query))
            if found != "ok":
                raise damaged(self.name, str(found))
        for info in self.sweeps():
            self.state(info.name)

    # writing

    def create_sweep(
        self, spec: SweepSpec, environment: Mapping[str, Any] | None = None, *, rename: bool = True
    ) -> str:
        """Add a sweep and return its name.

        Args:
            rename: append `-2`, `-3`... if the name is in use.

        Raises:
            UsageError: the name is malformed, or it is in use and `rename` is False.
        """
        check_name(spec.name)
        shortened = (f"{spec.name[: MAX_NAME - len(f'-{n}')]}-{n}" for n in count(2))
        with translated(self.name), self._database.transaction(write=True) as connection:
            self._database.lock_schema(connection)
            known = set(connection.scalars(sa.select(SWEEPS.c.name)))
            name = next(one for one in chain([spec.name], shortened) if one not in known)
            if rename or name == spec.name:
                number = (connection.scalar(sa.select(sa.func.max(SWEEPS.c.id))) or 0) + 1
                row = sa.insert(SWEEPS).values(id=number, name=name, created=time.time(), last=0)
                connection.execute(row)
                (sweep,) = self._database.sweeps(connection, SWEEPS.c.id == number)
                created = Created(replace(spec, name=name).to_dict(), environment or {})
                append(connection, rows_of(sweep, [created]))
                return name
        raise UsageError(
            f"there is a sweep named {spec.name!r} in {self.name}: choose another name, "
            f"or go on with it: resume=True, or automl resume {spec.name}"
        )

    def append(self, sweep: str, *events: SweepEvent) -> list[int]:
        """Add events to the log, whoever holds the sweep; returns their numbers.

        Others than the holder append commands and specifications only.
        """
        seen = self._row(sweep)
        with translated(self.name), self._database.transaction(write=True) as connection:
            rows = rows_of(self._database.sweep(connection, seen, lock=True), events)
            append(connection, rows)
        return [row["number"] for row in rows]

    def hold(self, sweep: str, *, brief: bool = False) -> Hold:
        """Hold a sweep for writing; wait for a process that holds it for a moment only.

        Args:
            brief: hold it for a moment only, and do not wait.

        Raises:
            HeldError: another controller holds it; the message names its host and pid.
        """
        deadline = time.monotonic() + (0.0 if brief else MAX_BRIEF_SECONDS)
        while True:
            try:
                return self._hold(sweep, brief=brief)
            except HeldError as error:
                if not error.brief or time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def release(self, sweep: str) -> None:
        """Give a held sweep back."""
        if held := self._held.pop(sweep, None):
            held.release()

    def delete(self, sweep: str) -> None:
        """Remove a sweep with its log and files.

        Raises:
            StoreError: a controller holds the sweep.
        """
        held = self.hold(sweep)

        def remove(connection: sa.Connection) -> None:
            for column in (RECORDS.c.sweep, SWEEPS.c.id):
                connection.execute(sa.delete(column.table).where(column == held.sweep.id))

        try:
            self._database.run(remove, write=True)
        finally:
            self._held.pop(sweep).forget()
        with translated(self.name):
            self.files(sweep).remove()

    # how

    def _row(self, sweep: str) -> Sweep:
        return read_sweep(self._database, sweep, lambda _, found: found)

    def _hold(self, sweep: str, *, brief: bool) -> Hold:
        seen = self._row(sweep)
        with translated(self.name):
            lock = locked(self.files(sweep), "controller.lock") if self._lockable else None
        if self._lockable and lock is None:
            raise refusal(self._row(sweep))

        def take(connection: sa.Connection) -> Hold:
            # The second of two that come at once waits here, and finds the first's hold.
            before = self._database.sweep(connection, seen, lock=True)
            if lock is None and holder_alive(before):
                raise refusal(before)
            state = SweepState()
            apply(state, records_after(connection, before))
            return Hold(self._database, connection, before, state, lock, brief=brief)

        try:
            self._held[sweep] = self._database.run(take, write=True)
        except BaseException:
            if lock:
                lock.close()
            raise
        return self._held[sweep]
