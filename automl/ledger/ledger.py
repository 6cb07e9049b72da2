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

from . import catalog, database, rows
from .backup import Backups
from .lease import Lease, holder_alive, take
from .lock import lock_of
from .newest import NewestCommits
from .progress import read_progress, write_progress
from .reader import Reader, SweepContents, SweepInfo
from .recorder import Recorder
from .schema import HOLDERS, STOP_REQUESTED
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
        self._newest = NewestCommits(Path(name)) if lockable else None
        self._reader = Reader(engine, name, self._newest)
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
        if self._newest:
            self._newest.close()
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
        self._reader.sweep(sweep)
        with translate_errors(self.name), self._write() as connection:
            catalog.replace_spec(connection, self.name, sweep, rows.dumps(spec.to_dict()))

    def environment(self, sweep: str) -> dict[str, Any]:
        """Git commit, package versions and hardware of the sweep when it was created."""
        row = self._reader.sweep(sweep)
        with translate_decoding_errors(self.name):
            return dict(json.loads(row["environment"]))

    def trials(self, sweep: str) -> list[Trial]:
        """Every trial by number, with its reports."""
        return self._reader.trials(sweep)

    def snapshot(self, sweep: str) -> Snapshot:
        """The sweep as it is now."""
        row, holder, trials = self._reader.snapshot(sweep)
        with translate_decoding_errors(self.name):
            spec = SweepSpec.from_dict(json.loads(row["spec"]))
            return Snapshot(
                sweep,
                row["state"],
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
        for found in self._reader.events(sweep):
            with translate_decoding_errors(self.name):
                event = rows.event_of(found["kind"], found["payload"])
            yield event

    def files(self, sweep: str) -> Folder:
        """The folder of the sweep's checkpoints and logs; it may not exist yet."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="automl-"))
        return Folder(self._folder, "sweeps", sweep)

    def request_stop(self, sweep: str) -> None:
        """Ask the controller of the sweep, in any process, to end the sweep."""
        sweep_id = self._reader.sweep(sweep)["id"]
        with translate_errors(self.name), self._write() as connection:
            row = read_progress(connection, self.name, sweep_id)
            flags = row["stop_requested"] | STOP_REQUESTED
            write_progress(connection, row | {"stop_requested": flags})

    def send(self, sweep: str, *commands: Command) -> None:
        """Give commands to the sweep; its controller obeys now, or when the sweep is resumed."""
        sweep_id = self._reader.sweep(sweep)["id"]
        found = [rows.event_row(sweep_id, command, time.time()) for command in commands]
        with translate_errors(self.name), self._write() as connection:
            row = catalog.add_commands(connection, self.name, sweep_id, found)
        if self._newest:
            self._newest.note_commands(row)

    def commands(self, sweep: str) -> list[Command]:
        """Every command that was given to the sweep, in order."""
        return [command for _, command in self._reader.commands(sweep)]

    def acquire(self, sweep: str) -> Recorder:
        """Hold a sweep for writing.

        Raises:
            StoreError: another controller holds it; the message names its host and pid.
        """
        self._reader.sweep(sweep)
        with translate_errors(self.name):
            lock = lock_of(self.files(sweep)) if self._lockable else None
        try:
            if lock and not lock.acquire():
                raise self._refusal(sweep, self._reader.holder(sweep))
            if lock:
                database.check_pages(self._engine, self.name)
            is_server = not lock and self._folder is not None
            seen = self._wait_until_free(sweep) if is_server else None
            contents = self._reader.contents(sweep)
            recorder = Recorder(
                self._engine,
                self._reader,
                self._take(contents, seen),
                contents,
                lock=lock,
                backups=Backups(Path(self.name)) if lock else None,
                newest=self._newest,
            )
        except BaseException:
            if lock:
                lock.release()
            raise
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
                if self._newest:
                    self._newest.forget(row["id"])
                catalog.delete_sweep(connection, self.name, row["id"])
        finally:
            self.release(sweep)
        with translate_errors(self.name):
            self.files(sweep).remove()

    def _take(self, contents: SweepContents, seen: tuple[int, int] | None) -> Lease:
        """Become the holder of a sweep.

        Args:
            contents: of the sweep; seen: see `_wait_until_free`; None for a file, which is locked.
        """
        sweep = contents.sweep
        with translate_errors(self.name), self._write() as connection:
            # If two controllers come at once, the second waits here and finds the first's row.
            row = read_progress(connection, self.name, sweep["id"])
            query = sa.select(HOLDERS).where(HOLDERS.c.sweep == sweep["id"])
            last = connection.execute(query).mappings().first()
            if seen and last and (last["fence"], last["commits"]) != seen:
                raise self._refusal(sweep["name"], last)
            write_progress(connection, row | {"state": "running", "stop_requested": 0})
            return take(connection, self.name, sweep["id"], contents.holder)

    def _wait_until_free(self, sweep: str) -> tuple[int, int]:
        """Check that no controller holds a sweep of a server.

        A controller with an old heartbeat is watched for a new one: some clock may have been set.

        Returns:
            The fencing number and the count of commits. If they have changed when the sweep is
            taken, another controller was faster.
        """
        holder = self._reader.holder(sweep)
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
            holder = self._reader.holder(sweep)
        return seen

    def _write(self) -> Any:
        return self._engine.execution_options(write=True).begin()

    def _insert_sweep(self, spec: SweepSpec, environment: Mapping[str, Any]) -> bool:
        row = {
            "name": spec.name,
            "spec": rows.dumps(spec.to_dict()),
            "environment": rows.dumps(environment),
            "created": time.time(),
        }
        try:
            with translate_errors(self.name), self._write() as connection:
                catalog.add_sweep(connection, self.name, row)
        except StoreError as error:
            if isinstance(error.__cause__, sa.exc.IntegrityError):
                return False
            raise
        return True

    def _refusal(self, sweep: str, holder: Mapping[str, Any] | None) -> StoreError:
        who = f"process {holder['pid']} on {holder['host']}" if holder else "another process"
        return StoreError(
            f"sweep {sweep!r} is held by {who}: wait for it, or stop it with `automl stop {sweep}`"
        )
