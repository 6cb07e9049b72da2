"""Reads the sweeps of a database, creates and deletes them, and holds one for writing."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from automl.core import Answered, Command, Snapshot, SweepEvent, SweepSpec, Trial
from automl.core.names import MAX_NAME, check_name
from automl.errors import StoreError, UsageError
from workers.files.folder import Folder

from . import catalog, database, holding, rows
from .audit import NONE_READ, CommandsRead
from .backup import Backups
from .follower import Follower
from .lease import Lease, clock, holder_alive, take
from .lock import lock_of
from .newest import NewestCommits
from .progress import read_progress, write_progress
from .reader import Reader, SweepContents, SweepHead, SweepInfo
from .recorder import Recorder
from .rows import Row
from .schema import HOLDERS, STOP_REQUESTED
from .store_errors import HeldError, translate_decoding_errors, translate_errors

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
        return self._snapshot(row, holder, trials)

    def heads(self) -> list[SweepHead]:
        """Every sweep without its trials, the newest one last."""
        return self._reader.heads()

    def follow(self, sweep: str) -> Follower:
        """A follower of the sweep; it reads nothing yet."""
        return self._reader.follower(sweep)

    def followed(self, follower: Follower) -> Snapshot:
        """The sweep as a follower has read it last."""
        return self._snapshot(follower.row, follower.holder, follower.trials)

    def _snapshot(self, row: Row, holder: Row | None, trials: Sequence[Trial]) -> Snapshot:
        with translate_decoding_errors(self.name):
            spec = SweepSpec.from_dict(json.loads(row["spec"]))
            return Snapshot(
                row["name"],
                row["state"],
                trials,
                spec.goals,
                spec.constraints,
                spec.budget,
                row["seconds"],
                spec=spec,
                **(json.loads(holder["status"]) if holder else {}),
            )

    def trial(self, sweep: str, number: int) -> Trial | None:
        """One trial with its reports; None if there is none of the number."""
        return self._reader.trial(sweep, number)

    def trial_events(self, sweep: str, number: int) -> list[tuple[float, SweepEvent]]:
        """The events of one trial except reports, in order, each with seconds since 1970."""
        found = self._reader.trial_events(sweep, number)
        with translate_decoding_errors(self.name):
            return [(row["recorded"], rows.event_of(row["kind"], row["payload"])) for row in found]

    def events(self, sweep: str) -> Iterator[SweepEvent]:
        """Every recorded event except reports, in order."""
        for found in self._reader.events(sweep):
            with translate_decoding_errors(self.name):
                event = rows.event_of(found["kind"], found["payload"])
            yield replace(event, sent=found["recorded"]) if isinstance(event, Command) else event

    def files(self, sweep: str) -> Folder:
        """The folder of the sweep's checkpoints and logs; it may not exist yet."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="automl-"))
        return Folder(self._folder, "sweeps", sweep)

    def request_stop(self, sweep: str, by: str = "") -> None:
        """Ask the controller of the sweep, in any process, to end the sweep.

        Args:
            by: who asks.
        """
        self._send(sweep, [Command("stop", {}, by=by)], STOP_REQUESTED)

    def send(self, sweep: str, *commands: Command) -> list[int]:
        """Give commands to the sweep, now or for its next controller; returns their identities."""
        return self._send(sweep, commands)

    def commands(self, sweep: str) -> list[Command]:
        """Every command that was given to the sweep, in order."""
        return [command for _, command in self._reader.commands(sweep)[0]]

    def new_commands(
        self, sweep: str, after: CommandsRead = NONE_READ
    ) -> tuple[list[tuple[int, Command]], CommandsRead]:
        """Identity and content of the commands that were given since an earlier call.

        Args:
            after: how far they were read, as the earlier call has returned it.
        """
        return self._reader.commands(sweep, after)

    def answer(self, sweep: str, command: int) -> tuple[Answered | None, bool]:
        """The answer to a request, None if there is none yet; and whether a controller runs."""
        found, holder = self._reader.answer(sweep, command)
        return found, bool(holder and holder["held"] and holder_alive(holder))

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
                if time.monotonic() > deadline or not holding.is_brief(
                    self._reader.holder(sweep), self._lockable
                ):
                    raise
            time.sleep(0.05)

    def _acquire(self, sweep: str, *, brief: bool) -> Recorder:
        self._reader.sweep(sweep)
        with translate_errors(self.name):
            lock = lock_of(self.files(sweep)) if self._lockable else None
        try:
            if lock and not lock.acquire():
                raise holding.refusal(sweep, self._reader.holder(sweep))
            if lock:
                database.check_pages(self._engine, self.name)
            is_server = not lock and self._folder is not None
            seen = holding.wait_until_free(self._reader, sweep) if is_server else None
            contents = self._reader.contents(sweep)
            backups = Backups(Path(self.name), brief=brief) if lock else None
            recorder = Recorder(
                self._engine,
                self._reader,
                self._take(contents, seen, {"brief": True} if brief else {}),
                contents,
                lock=lock,
                backups=backups,
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

    def _take(
        self, contents: SweepContents, seen: tuple[int, int] | None, status: Mapping[str, Any]
    ) -> Lease:
        """Become the holder of a sweep.

        Args:
            contents: of the sweep; seen: see `wait_until_free`; None for a file, which is locked.
            status: of the controller until its first commit.
        """
        sweep = contents.sweep
        with translate_errors(self.name), self._write() as connection:
            # If two controllers come at once, the second waits here and finds the first's row.
            row = read_progress(connection, self.name, sweep["id"])
            query = sa.select(HOLDERS).where(HOLDERS.c.sweep == sweep["id"])
            last = connection.execute(query).mappings().first()
            if seen and last and (last["fence"], last["commits"]) != seen:
                raise holding.refusal(sweep["name"], last)
            write_progress(connection, row | {"state": "running", "stop_requested": 0})
            return take(connection, self.name, sweep["id"], contents.holder, status)

    def _send(self, sweep: str, commands: Sequence[Command], flags: int = 0) -> list[int]:
        """Add commands to a sweep and set flags, in one transaction; returns their identities."""
        sweep_id = self._reader.sweep(sweep)["id"]
        with translate_errors(self.name), self._write() as connection:
            sent = clock(connection)
            found = [rows.event_row(sweep_id, command, sent) for command in commands]
            row, identities = catalog.add_commands(connection, self.name, sweep_id, found, flags)
        if self._newest:
            self._newest.note_commands(row)
        return identities

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
