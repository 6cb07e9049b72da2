"""Reads the sweeps of a database, creates and deletes them, and holds one for writing."""

from __future__ import annotations

import json
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from automl.core import (
    Answered,
    Created,
    Snapshot,
    SweepEvent,
    SweepSpec,
    SweepState,
    Trial,
)
from automl.core.arguments import MAX_NAME, check_name
from automl.errors import UsageError
from workers.files.folder import Folder

from .database import (
    RECORDS,
    SWEEPS,
    Database,
    HeldError,
    Sweep,
    locate,
    open_database,
    translated,
)
from .follower import Follower, catch_up, read_sweep
from .hold import FileLock, Hold, holder_alive, is_same, refusal, shown_state, wait_until_free
from .log import LogRecord, append, records_after, records_of_trial, rows_of

T = TypeVar("T")
LOCK: Final = "controller.lock"  # in the folder of a sweep
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


class Ledger:
    """The sweeps of a SQL database. Reading takes no lock, writing needs `hold`.

    Open one with `Ledger.open`. It may be used from any thread.
    """

    def __init__(self, database: Database, file: Path | None, folder: Path | None) -> None:
        self._database = database
        # In memory only the workers of a sweep make it.
        self._folder = folder or Path(tempfile.gettempdir(), f"automl-{uuid.uuid4().hex}")
        self._lockable = file is not None
        self._is_server = database.is_server
        self.name = database.name
        self._held: dict[str, Hold] = {}
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
        found = self._database.run(self._database.sweeps)
        if not found:
            self._database.run(self._database.check_rows)
        return list(map(_info, found))

    def exists(self, sweep: str) -> bool:
        """Whether there is a sweep of that name."""
        return any(info.name == sweep for info in self.sweeps())

    def spec(self, sweep: str) -> SweepSpec:
        """The specification that the sweep has now."""
        return self._look(sweep, lambda view: view.state.spec)

    def state(self, sweep: str) -> SweepState:
        """The state of the sweep, which is the caller's own."""

        def read(connection: sa.Connection, found: Sweep) -> SweepState:
            return catch_up(connection, found, SweepState())

        return read_sweep(self._database, sweep, read)

    def trials(self, sweep: str) -> list[Trial]:
        """Every trial by number, with its reports."""
        return self._look(sweep, lambda view: list(view.state.trials))

    def snapshot(self, sweep: str) -> Snapshot:
        """The sweep as it is now."""
        return self._look(sweep, Follower.snapshot)

    def follow(self, sweep: str) -> Follower:
        """A follower of the sweep; it reads nothing yet."""
        return Follower(self._database, sweep)

    def read(self, sweep: str, after: int = 0, trial: int | None = None) -> list[LogRecord]:
        """The records of the log after one of this number, in order; only those of a `trial`."""

        def read(connection: sa.Connection, found: Sweep) -> list[LogRecord]:
            if trial is not None:
                return records_of_trial(connection, found, trial)
            return [one for records in records_after(connection, found, after) for one in records]

        return read_sweep(self._database, sweep, read)

    def events(self, sweep: str) -> list[SweepEvent]:
        """Every recorded event, in order."""
        return [record.event for record in self.read(sweep)]

    def answer(self, sweep: str, command: int) -> tuple[Answered | None, bool]:
        """The answer to a request, None if there is none yet; and whether a controller runs."""

        def read(connection: sa.Connection, found: Sweep) -> tuple[Answered | None, bool]:
            for records in records_after(connection, found, command):
                for _, _, event in records:
                    if isinstance(event, Answered) and event.command == command:
                        return event, True
            return None, holder_alive(found)

        return read_sweep(self._database, sweep, read)

    def files(self, sweep: str) -> Folder:
        """The folder of the sweep's checkpoints and logs; it may not exist yet."""
        return Folder(self._folder, "sweeps", sweep)

    def check(self) -> None:
        """Read everything; raise StoreError if a page or a record is damaged or missing."""
        self._database.check_pages()
        self._database.run(self._database.check_rows)
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

    def append(self, sweep: str, *events: SweepEvent) -> list[int]:
        """Add events to the log, whoever holds the sweep; returns their numbers.

        Others than the holder append commands and specifications only.
        """
        seen = self._row(sweep)
        with translated(self.name), self._database.transaction(write=True) as connection:
            rows = rows_of(self._database.sweep(connection, seen, lock=True), events)
            append(connection, rows)
        return [row.number for row in rows]

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
            except HeldError:
                row = self._row(sweep)
                # Who has the lock of the folder writes the row a moment later.
                arrives = self._lockable and not holder_alive(row)
                ends = json.loads(row.status).get("brief") or arrives
                if not row.fence or not ends or time.monotonic() > deadline:
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
        self._row(sweep)
        held = self.hold(sweep)

        def remove(connection: sa.Connection) -> None:
            for column in (RECORDS.c.sweep, SWEEPS.c.id):
                connection.execute(sa.delete(column.table).where(column == held.sweep.id))

        try:
            self._database.run(remove, write=True)
            self._held.pop(sweep).forget()
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

    def _hold(self, sweep: str, *, brief: bool) -> Hold:
        seen = self._row(sweep)
        with translated(self.name):
            lock = FileLock(self.files(sweep), LOCK) if self._lockable else None
        try:
            if lock and not lock.acquire():
                raise refusal(self._row(sweep))
            if self._is_server:
                seen = wait_until_free(lambda: self._row(sweep))
            state = self.state(sweep)

            def take(connection: sa.Connection) -> Hold:
                # The second of two that come at once waits here, and finds the first's hold.
                before = self._database.sweep(connection, seen, lock=True)
                if self._is_server and not is_same(before, seen):
                    raise refusal(before)
                catch_up(connection, before, state)
                return Hold(self._database, connection, before, state, lock, brief=brief)

            held = self._database.run(take, write=True)
        except BaseException:
            if lock:
                lock.release()
            raise
        self._held[sweep] = held
        return held

    def _insert_sweep(self, spec: SweepSpec, environment: Mapping[str, Any]) -> bool:
        """Add a sweep; False if its name is in use."""
        with translated(self.name), self._database.transaction(write=True) as connection:
            self._database.lock_schema(connection)
            if connection.execute(sa.select(SWEEPS).where(SWEEPS.c.name == spec.name)).first():
                return False
            number = (connection.scalar(sa.select(sa.func.max(SWEEPS.c.id))) or 0) + 1
            facts = {"id": number, "name": spec.name, "created": time.time(), "last": 0}
            connection.execute(sa.insert(SWEEPS), facts)
            (sweep,) = self._database.sweeps(connection, SWEEPS.c.id == number)
            append(connection, rows_of(sweep, [Created(spec.to_dict(), environment)]))
        return True


def _info(sweep: Sweep) -> SweepInfo:
    state = shown_state(sweep, sweep.closed)
    host, pid = (sweep.host, sweep.pid) if state == "running" else ("", 0)
    version = (sweep.id, sweep.created, sweep.last, sweep.fence, sweep.commits, sweep.held)
    facts = (sweep.name, state, sweep.created, sweep.seconds, sweep.num_trials)
    return SweepInfo(*facts, host, pid, version)
