"""Reads the sweeps of a database, creates and deletes them, and holds one for writing."""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from automl.core import (
    Answered,
    Command,
    Created,
    Snapshot,
    SpecChanged,
    SweepEvent,
    SweepSpec,
    SweepState,
    Trial,
)
from automl.core.arguments import MAX_NAME, check_name
from automl.core.events import fold
from automl.errors import UsageError
from workers.files.folder import Folder
from workers.protocol import Report

from .database import (
    RECORDS,
    SNAPSHOTS,
    SWEEPS,
    Database,
    HeldError,
    Sweep,
    damaged,
    locate,
    open_database,
    translated,
)
from .follower import Follower, catch_up, read_state, read_sweep
from .recorder import (
    FileLock,
    Recorder,
    holder_alive,
    is_brief,
    is_same,
    refusal,
    shown_state,
    wait_until_free,
)
from .records import append, limited, records_after, records_where, rows_of

T = TypeVar("T")
E = TypeVar("E")
LOCK: Final = "controller.lock"  # in the folder of a sweep
MAX_BRIEF_SECONDS: Final = 60.0  # to wait for a process that holds a sweep for a moment


@dataclass(frozen=True)
class SweepInfo:
    """A line of `automl list`: `created` in seconds since 1970, `state` as in `Snapshot`."""

    name: str
    state: str
    created: float
    seconds: float
    num_trials: int


@dataclass(frozen=True)
class SweepHead:
    """A sweep without its trials.

    Args:
        version: another one after each commit of its controller and after each command.
        host, pid: of the controller that runs; "" and 0 if none does.
    """

    info: SweepInfo
    version: tuple[float, ...]
    host: str
    pid: int


class Ledger:
    """The sweeps of a SQL database. Reading takes no lock, writing needs `acquire`.

    Open one with `Ledger.open`. It may be used from any thread.
    """

    def __init__(self, database: Database, file: Path | None, folder: Path | None) -> None:
        self._database = database
        # In memory only the workers of a sweep make it.
        self._folder = folder or Path(tempfile.gettempdir(), f"automl-{uuid.uuid4().hex}")
        self._lockable = file is not None
        self._is_server = database.is_server
        self.name = database.name
        self._held: dict[str, Recorder] = {}
        self._view_lock = Lock()
        self._view: tuple[str, Follower] | None = None  # of the sweep that was looked at last

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
        return [head.info for head in self.heads()]

    def heads(self) -> list[SweepHead]:
        """Every sweep without its trials, the newest one last."""
        return list(map(_head, self._database.run(self._database.sweeps)))

    def exists(self, sweep: str) -> bool:
        """Whether there is a sweep of that name."""
        return any(info.name == sweep for info in self.sweeps())

    def spec(self, sweep: str) -> SweepSpec:
        """The specification that the sweep has now."""
        return self._look(sweep, lambda view: view.state.spec)

    def state(self, sweep: str) -> SweepState:
        """The state of the sweep, with every report."""
        return read_sweep(self._database, sweep, read_state)

    def trials(self, sweep: str) -> list[Trial]:
        """Every trial by number, with its reports."""
        return self.state(sweep).trials

    def snapshot(self, sweep: str, *, condensed: bool = False) -> Snapshot:
        """The sweep as it is now.

        Args:
            condensed: finished trials may lack reports that their values do not need, which takes
                much less time.
        """
        if condensed:
            return self._look(sweep, Follower.snapshot)
        view = Follower(self._database, sweep, whole=True)
        view.refresh()
        return view.snapshot()

    def follow(self, sweep: str) -> Follower:
        """A follower of the sweep; it reads nothing yet."""
        return Follower(self._database, sweep)

    def trial(self, sweep: str, number: int) -> Trial | None:
        """One trial with its reports; None if there is none of the number."""
        known = self._look(sweep, lambda view: view.state.trials[number : number + 1])
        if not known or not known[0].state.finished:
            return known[0] if known else None
        trial = None
        with translated(self.name):
            for record in self._where(sweep, RECORDS.c.trial == number):
                trial = fold(trial, record.event)
        if trial is None or _facts(trial) != _facts(known[0]):
            raise damaged(self.name, f"records of trial {number} of sweep {sweep!r} are missing")
        return trial

    def trial_events(self, sweep: str, number: int) -> list[tuple[float, SweepEvent]]:
        """The events of one trial except reports, in order, each with seconds since 1970."""
        return [
            (record.recorded, record.event)
            for record in self._where(sweep, RECORDS.c.trial == number)
            if not isinstance(record.event, Report)
        ]

    def events(self, sweep: str) -> list[SweepEvent]:
        """Every recorded event, in order."""

        def read(connection: sa.Connection, found: Sweep) -> list[SweepEvent]:
            chunks = records_after(connection, found, 0)
            return [record.event for records in chunks for record in records]

        return read_sweep(self._database, sweep, read)

    def commands(self, sweep: str) -> list[Command]:
        """Every command that was given to the sweep, in order."""
        return self.of_kind(sweep, Command)

    def of_kind(self, sweep: str, kind: type[E]) -> list[E]:
        """Every event of a kind, in order."""
        return [one.event for one in self._where(sweep, RECORDS.c.kind == kind.__name__)]

    def answer(self, sweep: str, command: int) -> tuple[Answered | None, bool]:
        """The answer to a request, None if there is none yet; and whether a controller runs."""

        def read(connection: sa.Connection, found: Sweep) -> tuple[Answered | None, bool]:
            later = RECORDS.c.number > command, RECORDS.c.kind == "Answered"
            for record in records_where(connection, found, *later):
                if record.event.command == command:
                    return record.event, True
            return None, holder_alive(found)

        return read_sweep(self._database, sweep, read)

    def files(self, sweep: str) -> Folder:
        """The folder of the sweep's checkpoints and logs; it may not exist yet."""
        return Folder(self._folder, "sweeps", sweep)

    def check(self) -> None:
        """Read everything; raise StoreError if a page or a record is damaged or missing."""
        self._database.check_pages()
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
        name, number = spec.name, 1
        while not self._insert_sweep(replace(spec, name=name), environment or {}):
            if not rename:
                raise UsageError(
                    f"there is a sweep named {name!r} in {self.name}: "
                    f"choose another name, or go on with it: resume=True, or automl resume {name}"
                )
            number += 1
            suffix = f"-{number}"
            name = spec.name[: MAX_NAME - len(suffix)] + suffix
        return name

    def change_spec(self, sweep: str, spec: SweepSpec) -> None:
        """Go on with another specification, for example with a larger budget; needs no lease."""
        self._append(sweep, [SpecChanged(spec.to_dict())])

    def send(self, sweep: str, *commands: Command) -> list[int]:
        """Record commands to the sweep, now or for its next controller; returns their numbers."""
        return self._append(sweep, commands)

    def acquire(self, sweep: str, *, brief: bool = False) -> Recorder:
        """Hold a sweep for writing; wait for a process that holds it for a moment only.

        Args:
            brief: hold it for a moment only, and do not wait.

        Raises:
            HeldError: another controller holds it; the message names its host and pid.
        """
        deadline = time.monotonic() + (0.0 if brief else MAX_BRIEF_SECONDS)
        while True:
            try:
                return self._acquire(sweep, brief=brief)
            except HeldError:
                if time.monotonic() > deadline or not is_brief(self._row(sweep), self._lockable):
                    raise
            time.sleep(0.05)

    def release(self, sweep: str) -> None:
        """Give a held sweep back."""
        if recorder := self._held.pop(sweep, None):
            recorder.release()

    def delete(self, sweep: str) -> None:
        """Remove a sweep with its log and files.

        Raises:
            StoreError: a controller holds the sweep.
        """
        self._row(sweep)
        recorder = self.acquire(sweep)

        def remove(connection: sa.Connection) -> None:
            for column in (RECORDS.c.sweep, SNAPSHOTS.c.sweep, SWEEPS.c.id):
                connection.execute(sa.delete(column.table).where(column == recorder.id))

        try:
            self._database.run(remove, write=True)
            recorder.forget()
        finally:
            self.release(sweep)
        with translated(self.name):
            self.files(sweep).remove()

    # how

    def _look(self, sweep: str, ask: Callable[[Follower], T]) -> T:
        """What is asked of the sweep as it is now, of which only what is new is read."""
        with self._view_lock:
            if self._view is None or self._view[0] != sweep:
                self._view = (sweep, self.follow(sweep))
            self._view[1].refresh()
            return ask(self._view[1])

    def _row(self, sweep: str) -> Sweep:
        return read_sweep(self._database, sweep, lambda _, found: found)

    def _where(self, sweep: str, *where: Any) -> list[Any]:
        """The records of a sweep that fulfil conditions."""
        return read_sweep(
            self._database, sweep, lambda connection, it: records_where(connection, it, *where)
        )

    def _acquire(self, sweep: str, *, brief: bool) -> Recorder:
        seen = self._row(sweep)
        with translated(self.name):
            lock = FileLock(self.files(sweep), LOCK) if self._lockable else None
        try:
            if lock and not lock.acquire():
                raise refusal(self._row(sweep))
            if self._is_server:
                seen = wait_until_free(lambda: self._row(sweep))
            state = self.state(sweep)

            def take(connection: sa.Connection) -> Recorder:
                # The second of two that come at once waits here, and finds the first's hold.
                before = self._database.sweep(connection, seen, lock=True)
                if self._is_server and not is_same(before, seen):
                    raise refusal(before)
                catch_up(connection, before, state)
                return Recorder(self._database, connection, before, state, lock, brief=brief)

            recorder = self._database.run(take, write=True)
        except BaseException:
            if lock:
                lock.release()
            raise
        self._held[sweep] = recorder
        return recorder

    def _append(self, sweep: str, events: Iterable[SweepEvent]) -> list[int]:
        """Add events to the log of a sweep that another process may hold; their numbers."""
        seen = self._row(sweep)
        events = [limited(event) for event in events]
        with translated(self.name), self._database.transaction(write=True) as connection:
            found = self._database.sweep(connection, seen, lock=True)
            records_where(connection, found, RECORDS.c.number == found.last)
            added = rows_of(found.id, found.last, events, found.now)
            append(connection, added)
        return [row.number for row in added]

    def _insert_sweep(self, spec: SweepSpec, environment: Mapping[str, Any]) -> bool:
        """Add a sweep; False if its name is in use."""
        created = limited(Created(spec.to_dict(), environment))
        with translated(self.name), self._database.transaction(write=True) as connection:
            self._database.lock_schema(connection)
            if connection.execute(sa.select(SWEEPS).where(SWEEPS.c.name == spec.name)).first():
                return False
            number = (connection.scalar(sa.select(sa.func.max(SWEEPS.c.id))) or 0) + 1
            facts = {"id": number, "name": spec.name, "created": time.time(), "last": 0}
            connection.execute(sa.insert(SWEEPS), facts)
            now = self._database.clock(connection)
            append(connection, rows_of(number, 0, [created], now))
        return True


def _head(sweep: Sweep) -> SweepHead:
    state = shown_state(sweep, sweep.closed)
    info = SweepInfo(sweep.name, state, sweep.created, sweep.seconds, sweep.num_trials)
    version = (sweep.id, sweep.created, sweep.last, sweep.fence, sweep.commits, sweep.held)
    host, pid = (sweep.host, sweep.pid) if state == "running" else ("", 0)
    return SweepHead(info, version, host, pid)


def _facts(trial: Trial) -> str:
    """What a trial with all reports has in common with one that was condensed."""
    return repr((trial.state, trial.attempts, trial.seconds, trial.message, trial.reports[-1:]))
