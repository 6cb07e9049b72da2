"""Reads the sweeps of a database, creates and deletes them, and holds one for writing."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from automl.core import Command, Snapshot, SweepEvent, SweepSpec, Trial
from automl.core.names import MAX_NAME, check_name
from automl.errors import StoreError, UsageError
from workers.files.folder import Folder

from . import database, rows
from .backup import Backups
from .lease import find_holder, holder_alive, take
from .lock import lock_of
from .reader import Reader, SweepInfo
from .recorder import Recorder
from .schema import (
    ATTEMPTS,
    EVENTS,
    HOLDERS,
    NEW_COMMANDS,
    REPORTS,
    STOP_REQUESTED,
    SWEEPS,
    TRIALS,
)
from .store_errors import translate_decoding_errors, translate_errors

WATCH_SECONDS: Final = 5.0


class Ledger:
    """A `SweepLedger` in a SQL database. Reading takes no lock, writing needs `acquire`.

    Open one with `Ledger.open`. It may be used from any thread.
    """

    def __init__(self, engine: sa.Engine, name: str, folder: Path | None, lockable: bool) -> None:
        self._engine = engine
        self._folder = folder
        self._lockable = lockable
        self.name = name
        self._reader = Reader(engine, name)
        self._held: dict[str, Recorder] = {}

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
        self._engine.dispose()

    def sweeps(self) -> list[SweepInfo]:
        """Every sweep, the newest one last."""
        return self._reader.sweeps()

    def exists(self, sweep: str) -> bool:
        """Whether there is a sweep of that name."""
        return any(info.name == sweep for info in self.sweeps())

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

    def spec(self, sweep: str) -> SweepSpec:
        """The spec that the sweep has now."""
        row = self._reader.sweep(sweep)
        with translate_decoding_errors(self.name):
            return SweepSpec.from_dict(json.loads(row["spec"]))

    def replace_spec(self, sweep: str, spec: SweepSpec) -> None:
        """Store another spec for a sweep, for example with a larger budget."""
        self._update_sweep(sweep, spec=rows.dumps(spec.to_dict()))

    def environment(self, sweep: str) -> dict[str, Any]:
        """Git commit, package versions and hardware of the sweep when it was created."""
        row = self._reader.sweep(sweep)
        with translate_decoding_errors(self.name):
            return dict(json.loads(row["environment"]))

    def trials(self, sweep: str) -> list[Trial]:
        """Every trial by number, with its reports."""
        return self._reader.trials(self._reader.sweep(sweep)["id"])

    def snapshot(self, sweep: str) -> Snapshot:
        """The sweep as it is now."""
        row = self._reader.sweep(sweep)
        state, trials = self._reader.state(row), self._reader.trials(row["id"])
        holder = self._reader.holder(row["id"]) if state == "running" else None
        with translate_decoding_errors(self.name):
            spec = SweepSpec.from_dict(json.loads(row["spec"]))
            return Snapshot(
                sweep,
                state,
                trials,
                spec.goals,
                spec.constraints,
                spec.budget,
                row["seconds"],
                spec=spec,
                **(json.loads(holder["status"]) if holder else {}),
            )

    def events(self, sweep: str) -> Iterator[SweepEvent]:
        """Every recorded event except reports, in order."""
        row = self._reader.sweep(sweep)
        params = {trial.number: trial.params for trial in self._reader.trials(row["id"])}
        query = sa.select(EVENTS).where(EVENTS.c.sweep == row["id"]).order_by(EVENTS.c.id)
        for found in self._reader.rows(query):
            with translate_decoding_errors(self.name):
                event = rows.event_of(
                    found["kind"], found["payload"], params.get(found["trial"], {})
                )
            yield event

    def files(self, sweep: str) -> Folder:
        """The folder of the sweep's checkpoints and logs; it may not exist yet."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="automl-"))
        return Folder(self._folder, "sweeps", sweep)

    def request_stop(self, sweep: str) -> None:
        """Ask the controller of the sweep, in any process, to end the sweep."""
        self._update_sweep(sweep, stop_requested=SWEEPS.c.stop_requested.bitwise_or(STOP_REQUESTED))

    def send(self, sweep: str, *commands: Command) -> None:
        """Give commands to the sweep; its controller obeys now, or when the sweep is resumed."""
        row = self._reader.sweep(sweep)
        found = [rows.event_row(row["id"], command, time.time()) for command in commands]
        with translate_errors(self.name), self._write() as connection:
            connection.execute(EVENTS.insert(), found)
            flags = SWEEPS.c.stop_requested.bitwise_or(NEW_COMMANDS)
            connection.execute(
                SWEEPS.update().where(SWEEPS.c.id == row["id"]).values(stop_requested=flags)
            )

    def commands(self, sweep: str) -> list[Command]:
        """Every command that was given to the sweep, in order."""
        mine = EVENTS.c.sweep == self._reader.sweep(sweep)["id"]
        query = (
            sa.select(EVENTS.c.payload)
            .where(mine, EVENTS.c.kind == rows.COMMAND)
            .order_by(EVENTS.c.id)
        )
        with translate_decoding_errors(self.name):
            return [Command(**json.loads(row["payload"])) for row in self._reader.rows(query)]

    def acquire(self, sweep: str) -> Recorder:
        """Hold a sweep for writing.

        Raises:
            StoreError: another controller holds it; the message names its host and pid.
        """
        row = self._reader.sweep(sweep)
        with translate_errors(self.name):
            lock = lock_of(self.files(sweep)) if self._lockable else None
        try:
            if lock and not lock.acquire():
                raise self._refusal(sweep, self._reader.holder(row["id"]))
            if lock:
                database.check_pages(self._engine, self.name)
            is_server = not lock and self._folder is not None
            seen = self._wait_until_free(sweep, row["id"]) if is_server else None
            with translate_errors(self.name), self._write() as connection:
                # If two controllers come at once, the second waits here and finds the first's row.
                connection.execute(
                    sa.select(SWEEPS.c.id).where(SWEEPS.c.id == row["id"]).with_for_update()
                )
                holder = find_holder(connection, row["id"])
                if seen and holder and (holder["fence"], holder["commits"]) != seen:
                    raise self._refusal(sweep, holder)
                lease = take(connection, self.name, row["id"])
                running = {"state": "running", "stop_requested": 0}
                connection.execute(SWEEPS.update().where(SWEEPS.c.id == row["id"]).values(running))
            trials = self._reader.trials(row["id"])
        except BaseException:
            if lock:
                lock.release()
            raise
        backups = Backups(Path(self.name)) if lock else None
        recorder = Recorder(self._engine, lease, trials, lock=lock, backups=backups)
        self._held[sweep] = recorder
        return recorder

    def release(self, sweep: str) -> None:
        """Give a held sweep back."""
        if recorder := self._held.pop(sweep, None):
            recorder.release()

    def delete(self, sweep: str) -> None:
        """Remove a sweep with its trials, reports and files.

        Raises:
            StoreError: a controller holds the sweep.
        """
        row = self._reader.sweep(sweep)
        self.acquire(sweep)
        try:
            with translate_errors(self.name), self._write() as connection:
                for table in (REPORTS, ATTEMPTS, EVENTS, TRIALS, HOLDERS):
                    connection.execute(table.delete().where(table.c.sweep == row["id"]))
                connection.execute(SWEEPS.delete().where(SWEEPS.c.id == row["id"]))
        finally:
            self.release(sweep)
        with translate_errors(self.name):
            self.files(sweep).remove()

    def _wait_until_free(self, sweep: str, sweep_id: int) -> tuple[int, int]:
        """Check that no controller holds a sweep of a server.

        A controller with an old heartbeat is watched for a new one: some clock may have been set.

        Returns:
            The fencing number and the count of commits. If they have changed when the sweep is
            taken, another controller was faster.
        """
        holder = self._reader.holder(sweep_id)
        if holder is None:
            return 0, 0
        seen = holder["fence"], holder["commits"]
        deadline = time.monotonic() + WATCH_SECONDS
        while holder and holder["held"]:
            if holder_alive(holder) or (holder["fence"], holder["commits"]) != seen:
                raise self._refusal(sweep, holder)
            if holder["host"] == socket.gethostname() or time.monotonic() > deadline:
                break
            time.sleep(WATCH_SECONDS / 20)
            holder = self._reader.holder(sweep_id)
        return seen

    def _write(self) -> Any:
        return self._engine.execution_options(write=True).begin()

    def _insert_sweep(self, spec: SweepSpec, environment: Mapping[str, Any]) -> bool:
        row = {
            "name": spec.name,
            "spec": rows.dumps(spec.to_dict()),
            "environment": rows.dumps(environment),
            "state": "interrupted",
            "created": time.time(),
        }
        try:
            with translate_errors(self.name), self._write() as connection:
                connection.execute(SWEEPS.insert(), row)
        except StoreError as error:
            if isinstance(error.__cause__, sa.exc.IntegrityError):
                return False
            raise
        return True

    def _update_sweep(self, sweep: str, **values: Any) -> None:
        row = self._reader.sweep(sweep)
        with translate_errors(self.name), self._write() as connection:
            connection.execute(SWEEPS.update().where(SWEEPS.c.id == row["id"]).values(values))

    def _refusal(self, sweep: str, holder: Mapping[str, Any] | None) -> StoreError:
        who = f"process {holder['pid']} on {holder['host']}" if holder else "another process"
        return StoreError(
            f"sweep {sweep!r} is held by {who}: wait for it, or stop it with `automl stop {sweep}`"
        )
