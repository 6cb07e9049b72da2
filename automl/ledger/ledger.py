"""Reads the sweeps of a database, follows one, creates and deletes them, holds one for writing."""

from __future__ import annotations

import gc
import json
import os
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Any, Final, TypeVar

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
from automl.core.arguments import MAX_NAME, check_name
from automl.errors import UsageError
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
from .hold import Hold, holder_alive, locked, refusal, shown_state

T = TypeVar("T")
MAX_COMMANDS: Final = 1000  # the newest ones, that a follower keeps
MAX_BRIEF_SECONDS: Final = 60.0  # to wait for a process that holds a sweep for a moment


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
