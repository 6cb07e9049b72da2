"""Reads the sweeps of a database, creates and deletes them, and holds one for writing."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
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
from automl.core.events import fold
from automl.core.names import MAX_NAME, check_name
from automl.errors import StoreError, UsageError
from workers.files.folder import Folder
from workers.protocol import Report

from . import database
from .backup import Backups
from .follower import Follower, newest_commands
from .head import Head, check_place
from .lease import (
    Lease,
    clock,
    holder_alive,
    is_brief,
    is_same,
    refusal,
    wait_until_free,
)
from .limits import limited
from .lock import lock_of
from .protocol import LogRecord
from .reader import (
    Reader,
    Sweep,
    SweepHead,
    SweepInfo,
    advance,
    chunks,
    last_place,
    read_lease,
    read_state,
    rows_after,
    sound_rows,
)
from .recorder import Recorder
from .records import BEGINNING, Place, chained, decoded, seal, verify
from .schema import LEASES, RECORDS, SNAPSHOTS, SWEEPS
from .store_errors import HeldError, damaged, translate_decoding_errors, translate_errors

T = TypeVar("T")
BRIEF_SECONDS: Final = 60.0  # to wait for a process that holds a sweep for a moment


class Ledger:
    """A `SweepLedger` in a SQL database. Reading takes no lock, writing needs `acquire`.

    Open one with `Ledger.open`. It may be used from any thread.
    """

    def __init__(self, engine: sa.Engine, name: str, folder: Path | None, lockable: bool) -> None:
        self._engine = engine
        self._folder = folder
        self._lockable = lockable
        self.name = name
        self._head = Head(Path(name)) if lockable else None
        self._reader = Reader(engine, name, self._head)
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
            StoreError: the store is missing, empty, damaged, of a newer schema, or cannot be read
                or written.
        """
        engine = database.open_engine(location, create=create, readonly=readonly)
        _, file, folder = database.locate(location)
        name = str(file) if file else database.shown(location)
        return cls(engine, name, folder, lockable=file is not None)

    def close(self) -> None:
        """Release every held sweep and close the connections."""
        for name in list(self._held):
            self.release(name)
        if self._head:
            self._head.close()
        self._engine.dispose()

    # reading

    def sweeps(self) -> list[SweepInfo]:
        """Every sweep, the newest one last."""
        return [head.info for head in self.heads()]

    def heads(self) -> list[SweepHead]:
        """Every sweep without its trials, the newest one last."""
        return self._reader.heads()

    def exists(self, sweep: str) -> bool:
        """Whether there is a sweep of that name."""
        return any(info.name == sweep for info in self.sweeps())

    def spec(self, sweep: str) -> SweepSpec:
        """The specification that the sweep has now."""
        return self._look(sweep, lambda view: view.state.spec)

    def environment(self, sweep: str) -> dict[str, Any]:
        """Git commit, package versions and hardware of the sweep when it was created."""
        return self._look(sweep, lambda view: dict(view.state.environment))

    def state(self, sweep: str) -> SweepState:
        """The state of the sweep, with every report."""
        return self._reader.state(sweep)

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
            return self._look(sweep, self.followed)

        def read(connection: sa.Connection, found: Sweep) -> Snapshot:
            view = Follower(self._reader, sweep)
            view.state, _ = read_state(connection, found)
            view.lease = read_lease(connection, found)
            return self.followed(view)

        return self._reader.of_sweep(sweep, read)

    def follow(self, sweep: str) -> Follower:
        """A follower of the sweep; it reads nothing yet."""
        return Follower(self._reader, sweep)

    def followed(self, view: Follower) -> Snapshot:
        """The sweep as a follower has read it last."""
        return Snapshot.of(
            view.state, view.shown, view.seconds, events=tuple(view.events), **view.status
        )

    def trial(self, sweep: str, number: int) -> Trial | None:
        """One trial with its reports; None if there is none of the number."""
        known = self._look(sweep, lambda view: view.state.trials[number : number + 1])
        if not known or not known[0].state.finished:
            return known[0] if known else None
        trial = None
        with translate_decoding_errors(self.name):
            for record in self._records_of(sweep, number):
                trial = fold(trial, record.event)
        if trial is None or _facts(trial) != _facts(known[0]):
            raise damaged(self.name, f"records of trial {number} of sweep {sweep!r} are missing")
        return trial

    def trial_events(self, sweep: str, number: int) -> list[tuple[float, SweepEvent]]:
        """The events of one trial except reports, in order, each with seconds since 1970."""
        return [
            (record.recorded, record.event)
            for record in self._records_of(sweep, number)
            if not isinstance(record.event, Report)
        ]

    def records(self, sweep: str, after: int = 0) -> list[LogRecord]:
        """The records of the sweep after the one of this number, in order."""
        return self._reader.records(sweep, after)

    def events(self, sweep: str) -> Iterator[SweepEvent]:
        """Every recorded event, in order."""
        yield from (record.event for record in self.records(sweep))

    def commands(self, sweep: str) -> list[Command]:
        """Every command that was given to the sweep, in order."""
        return self._reader.of_sweep(sweep, newest_commands)

    def answer(self, sweep: str, command: int) -> tuple[Answered | None, bool]:
        """The answer to a request, None if there is none yet; and whether a controller runs."""

        def read(connection: sa.Connection, found: Sweep) -> tuple[Answered | None, bool]:
            mine = (RECORDS.c.sweep == found.id) & (RECORDS.c.number > command)
            query = sa.select(RECORDS).where(mine & (RECORDS.c.kind == "Answered"))
            for record in decoded(sound_rows(connection, found, query)):
                if isinstance(record.event, Answered) and record.event.command == command:
                    return record.event, True
            return None, holder_alive(read_lease(connection, found))

        return self._reader.of_sweep(sweep, read)

    def files(self, sweep: str) -> Folder:
        """The folder of the sweep's checkpoints and logs; it may not exist yet."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="automl-"))
        return Folder(self._folder, "sweeps", sweep)

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
                    "choose another name, or resume"
                )
            number += 1
            suffix = f"-{number}"
            name = spec.name[: MAX_NAME - len(suffix)] + suffix
        return name

    def change_spec(self, sweep: str, spec: SweepSpec) -> None:
        """Go on with another specification, for example with a larger budget."""
        self._append(sweep, [SpecChanged(spec.to_dict())])

    def request_stop(self, sweep: str, by: str = "") -> None:
        """Ask the controller of the sweep, in any process, to end the sweep.

        Args:
            by: who asks.
        """
        self.send(sweep, Command("stop", {}, by=by))

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
        deadline = time.monotonic() + (0.0 if brief else BRIEF_SECONDS)
        while True:
            try:
                return self._acquire(sweep, brief=brief)
            except HeldError:
                if time.monotonic() > deadline or not is_brief(
                    self._reader.lease(sweep), self._lockable
                ):
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
        found = self._reader.find(sweep)
        self.acquire(sweep)
        try:
            with translate_errors(self.name), self._write() as connection:
                if self._head:
                    self._head.write(found.id, BEGINNING)
                for table in (RECORDS, LEASES, SNAPSHOTS):
                    connection.execute(table.delete().where(table.c.sweep == found.id))
                connection.execute(SWEEPS.delete().where(SWEEPS.c.id == found.id))
            self._held[sweep].forget()
        finally:
            self.release(sweep)
        with translate_errors(self.name):
            self.files(sweep).remove()

    # how

    def _look(self, sweep: str, ask: Callable[[Follower], T]) -> T:
        """What is asked of the sweep as it is now, of which only what is new is read."""
        with self._view_lock:
            if self._view is None or self._view[0] != sweep:
                self._view = (sweep, self.follow(sweep))
            self._view[1].refresh()
            return ask(self._view[1])

    def _records_of(self, sweep: str, number: int) -> list[LogRecord]:
        def read(connection: sa.Connection, found: Sweep) -> list[LogRecord]:
            mine = (RECORDS.c.sweep == found.id) & (RECORDS.c.trial == number)
            query = sa.select(RECORDS).where(mine).order_by(RECORDS.c.number)
            return decoded(sound_rows(connection, found, query))

        return self._reader.of_sweep(sweep, read)

    def _acquire(self, sweep: str, *, brief: bool) -> Recorder:
        found = self._reader.find(sweep)
        with translate_errors(self.name):
            lock = lock_of(self.files(sweep)) if self._lockable else None
        try:
            if lock and not lock.acquire():
                raise refusal(sweep, self._reader.lease(sweep))
            if lock:
                database.check_pages(self._engine, self.name)
            seen = None
            is_server = not lock and self._folder is not None
            if is_server:
                seen = wait_until_free(lambda: self._reader.lease(sweep), sweep)
            state, place = self._reader.of_sweep(sweep, read_state)
            status = {"brief": True} if brief else {}
            with (
                translate_errors(self.name),
                translate_decoding_errors(self.name),
                self._write() as connection,
            ):
                # The second of two that come at once waits here, and finds the first's lease.
                _lock(connection, found)
                last = read_lease(connection, found)
                if is_server and not is_same(last, seen):
                    raise refusal(sweep, last)
                for rows in chunks(connection, found, place):
                    advance(state, decoded(rows))
                    place = Place(rows[-1].number, rows[-1].sum)
                lease = Lease.take(connection, self.name, found.id, last, status)
            backups = Backups(Path(self.name), brief=brief) if lock else None
            recorder = Recorder(
                self._engine, self._reader, self.name, found, lease, state, place, last,
                lock=lock, backups=backups, head=self._head,
            )  # fmt: skip
        except BaseException:
            if lock:
                lock.release()
            raise
        self._held[sweep] = recorder
        return recorder

    def _append(self, sweep: str, events: Iterable[SweepEvent]) -> list[int]:
        """Add events to the log of a sweep that another process may hold; their numbers."""
        found = self._reader.find(sweep)
        known = self._head.read().get(found.id) if self._head else None
        events = [limited(event) for event in events]
        with (
            translate_errors(self.name),
            translate_decoding_errors(self.name),
            self._write() as connection,
        ):
            _lock(connection, found)
            last = last_place(connection, found.id)
            check_place(known, last, sweep)
            for rows in rows_after(connection, found.id, last.number - 1):
                verify(rows, Place(last.number - 1, rows[0].previous), sweep)
            added = chained(found.id, last, events, clock(connection))
            connection.execute(RECORDS.insert(), [row._asdict() for row in added])
        if self._head and added:
            self._head.write(found.id, Place(added[-1].number, added[-1].sum))
        return [row.number for row in added]

    def _write(self) -> Any:
        return self._engine.execution_options(write=True).begin()

    def _insert_sweep(self, spec: SweepSpec, environment: Mapping[str, Any]) -> bool:
        created = limited(Created(spec.to_dict(), environment))
        try:
            with translate_errors(self.name), self._write() as connection:
                row: dict[str, Any] = {"name": spec.name, "created": time.time()}
                found: Any = connection.execute(SWEEPS.insert(), row | {"sum": 0})
                row["id"] = found.inserted_primary_key[0]
                sealed = seal("sweep", row)
                connection.execute(SWEEPS.update().where(SWEEPS.c.id == row["id"]).values(sealed))
                (first,) = chained(row["id"], BEGINNING, [created], clock(connection))
                connection.execute(RECORDS.insert(), first._asdict())
        except StoreError as error:
            if isinstance(error.__cause__, sa.exc.IntegrityError):
                return False
            raise
        if self._head:
            self._head.write(row["id"], Place(first.number, first.sum))
        return True


def _lock(connection: sa.Connection, sweep: Sweep) -> None:
    """Make other writers of a sweep wait; its row may be gone."""
    query = sa.select(SWEEPS.c.id).where(SWEEPS.c.id == sweep.id).with_for_update()
    if connection.execute(query).first() is None:
        raise UsageError(f"sweep {sweep.name!r} was deleted")


def _facts(trial: Trial) -> str:
    """What a trial with all reports has in common with one that was condensed."""
    return repr((trial.state, trial.attempts, trial.seconds, trial.message, trial.reports[-1:]))
