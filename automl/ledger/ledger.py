"""Reading a store, and taking hold of one of its sweeps."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from automl.core.events import SweepEvent, Wished, lineage
from automl.core.snapshot import Snapshot
from automl.core.spec import SweepSpec
from automl.core.trial import ReportPoint, Trial
from automl.errors import StoreError, UsageError

from . import rows as codec
from . import sql as store
from .backup import Backups
from .folders import refuse_links
from .lease import FileLock, alive
from .recorder import Recorder, clock, hold
from .schema import ATTEMPTS, EVENTS, HOLDERS, REPORTS, STOP, SWEEPS, TRIALS, WISHED
from .trouble import decoding, reading, translated

WATCH_SECONDS: Final = 5.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True)
class SweepInfo:
    """A line of `automl list`: `created` in seconds since 1970, `state` as in `Snapshot`."""

    name: str
    state: str
    created: float
    seconds: float
    num_trials: int


class Ledger:
    """A store of sweeps. Reading takes no lock; writing needs `acquire`. May be used from any thread.

    Make one with `Ledger.open`.
    """

    def __init__(self, engine: sa.Engine, name: str, folder: Path | None, lockable: bool) -> None:
        self._engine, self._folder, self._lockable = engine, folder, lockable
        self.name = name
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
            location: a folder (its SQLite file is `ledger.sqlite3`), a SQLAlchemy URL, or "sqlite://" for memory.
            create: make it where there is none.
            readonly: refuse to write.

        Raises:
            StoreError: it is not there, cannot be read or written, is empty, damaged, or of a newer schema.
        """
        engine = store.open_engine(location, create=create, readonly=readonly)
        _, file, folder = store.locate(location)
        name = str(file) if file else store.shown(location)
        return cls(engine, name, folder, lockable=file is not None)

    def close(self) -> None:
        """Release what is held and close the connections."""
        for name in list(self._held):
            self.release(name)
        self._engine.dispose()

    def sweeps(self) -> list[SweepInfo]:
        """Every sweep, the newest last."""
        count = sa.select(sa.func.count()).where(TRIALS.c.sweep == SWEEPS.c.id).scalar_subquery()
        query = sa.select(SWEEPS, count.label("num_trials")).order_by(SWEEPS.c.id)
        rows = self._rows(query)
        return [
            SweepInfo(r["name"], self._state(r), r["created"], r["seconds"], r["num_trials"])
            for r in rows
        ]

    def create_sweep(
        self, spec: SweepSpec, environment: Mapping[str, Any] | None = None, *, rename: bool = True
    ) -> str:
        """Add a sweep and return its name, which gets `-2`, `-3`... where it is in use and `rename` is set.

        Raises:
            UsageError: the name is malformed, or in use and `rename` is not set.
        """
        check_name(spec.name)
        for candidate in _candidates(spec.name):
            if self._insert_sweep(replace(spec, name=candidate), environment or {}):
                return candidate
            if not rename:
                raise UsageError(
                    f"there is a sweep named {spec.name!r} in {self.name}: choose another name, or resume"
                )
        raise AssertionError("unreachable")

    def spec(self, sweep: str) -> SweepSpec:
        """What the sweep was made with."""
        row = self._row(sweep)
        with decoding(self.name):
            return SweepSpec.from_dict(json.loads(row["spec"]))

    def replace_spec(self, sweep: str, spec: SweepSpec) -> None:
        """Keep another spec for a sweep, with a larger budget for instance."""
        self._update_sweep(sweep, spec=codec.dumps(spec.to_dict()))

    def environment(self, sweep: str) -> dict[str, Any]:
        """Git commit, package versions and hardware that the sweep was made with."""
        row = self._row(sweep)
        with decoding(self.name):
            found: dict[str, Any] = json.loads(row["environment"])
        return found

    def trials(self, sweep: str) -> list[Trial]:
        """Every trial by number, with its reports."""
        return self._trials(self._row(sweep)["id"])

    def snapshot(self, sweep: str) -> Snapshot:
        """The sweep as it is now."""
        row = self._row(sweep)
        state, trials = self._state(row), self._trials(row["id"])
        holder = self._holder(row["id"]) if state == "running" else None
        with decoding(self.name):
            spec = SweepSpec.from_dict(json.loads(row["spec"]))
            return Snapshot(
                sweep,
                state,
                trials,
                spec.goals,
                spec.constraints,
                spec.budget,
                row["seconds"],
                last_report_counts=spec.last_report_counts,
                spec=spec,
                **(json.loads(holder["status"]) if holder else {}),
            )

    def events(self, sweep: str) -> Iterator[SweepEvent]:
        """Everything recorded but reports, in order."""
        row = self._row(sweep)
        params = {trial.number: trial.params for trial in self._trials(row["id"])}
        query = sa.select(EVENTS).where(EVENTS.c.sweep == row["id"]).order_by(EVENTS.c.id)
        for found in self._rows(query):
            with decoding(self.name):
                event = codec.event_of(
                    found["kind"], found["payload"], params.get(found["trial"], {})
                )
            yield event

    def folder(self, sweep: str) -> Path:
        """The sweep's own folder, for checkpoints and logs; it may not exist yet."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="automl-"))
        return self._folder / "sweeps" / sweep

    def request_stop(self, sweep: str) -> None:
        """Ask the sweep's controller, in whatever process it is, to end the sweep."""
        self._update_sweep(sweep, stop_requested=SWEEPS.c.stop_requested.bitwise_or(STOP))

    def wish(self, sweep: str, *wishes: Wished) -> None:
        """Ask something of the sweep; its controller takes it up, now or when the sweep is resumed."""
        row = self._row(sweep)
        rows = [codec.event_row(row["id"], wish, time.time()) for wish in wishes]
        with translated(self.name), self._write() as connection:
            connection.execute(EVENTS.insert(), rows)
            asked = SWEEPS.c.stop_requested.bitwise_or(WISHED)
            connection.execute(
                SWEEPS.update().where(SWEEPS.c.id == row["id"]).values(stop_requested=asked)
            )

    def wishes(self, sweep: str) -> list[Wished]:
        """Everything that was asked of the sweep, in order."""
        mine = EVENTS.c.sweep == self._row(sweep)["id"]
        query = (
            sa.select(EVENTS.c.payload)
            .where(mine, EVENTS.c.kind == Wished.__name__)
            .order_by(EVENTS.c.id)
        )
        with decoding(self.name):
            return [Wished(**json.loads(row["payload"])) for row in self._rows(query)]

    def acquire(self, sweep: str) -> Recorder:
        """Hold a sweep for writing.

        Raises:
            StoreError: another controller holds it; the message names its host and pid.
        """
        row = self._row(sweep)
        with translated(self.name):
            lock = self._lock(sweep) if self._lockable else None
        try:
            if lock and not lock.acquire():
                raise self._refusal(sweep, self._holder(row["id"]))
            if lock:
                store.check_pages(self._engine, self.name)
            seen = None if lock or self._folder is None else self._left(sweep, row["id"])
            with translated(self.name), self._write() as connection:
                # Two controllers that come at once: the second waits here and then sees the first one's row.
                connection.execute(
                    sa.select(SWEEPS.c.id).where(SWEEPS.c.id == row["id"]).with_for_update()
                )
                holder = self._holder(row["id"], connection)
                if seen and holder and (holder["fence"], holder["commits"]) != seen:
                    raise self._refusal(sweep, holder)
                fence = hold(connection, row["id"])
                running = {"state": "running", "stop_requested": 0}
                connection.execute(SWEEPS.update().where(SWEEPS.c.id == row["id"]).values(running))
            trials = self._trials(row["id"])
        except BaseException:
            if lock:
                lock.release()
            raise
        backups = Backups(Path(self.name)) if lock else None
        recorder = Recorder(
            self._engine, self.name, row["id"], trials, fence=fence, lock=lock, backups=backups
        )
        self._held[sweep] = recorder
        return recorder

    def release(self, sweep: str) -> None:
        """Give a held sweep back."""
        if recorder := self._held.pop(sweep, None):
            recorder.release()

    def delete(self, sweep: str) -> None:
        """Remove a sweep with its trials, reports and files; raises StoreError where a controller holds it."""
        row = self._row(sweep)
        self.acquire(sweep)
        try:
            with translated(self.name), self._write() as connection:
                for table in (REPORTS, ATTEMPTS, EVENTS, TRIALS, HOLDERS):
                    connection.execute(table.delete().where(table.c.sweep == row["id"]))
                connection.execute(SWEEPS.delete().where(SWEEPS.c.id == row["id"]))
        finally:
            self.release(sweep)
        with (
            translated(self.name),
            contextlib.suppress(FileNotFoundError),
        ):  # nothing of it was ever run
            shutil.rmtree(self.folder(sweep))

    def record(self, sweep: str, *events: SweepEvent) -> None:
        """Apply events to a held sweep and commit them together."""
        recorder = self._held[sweep]
        for event in events:
            recorder.apply(event)
        recorder.commit()

    def _lock(self, sweep: str) -> FileLock:
        """The lock of a sweep's folder, in which nothing may lead out of the store."""
        folder = self.folder(sweep)
        refuse_links(folder)
        return FileLock(folder / "controller.lock")

    def _left(self, sweep: str, sweep_id: int) -> tuple[int, int]:
        """See that no controller holds a sweep of a server.

        A clock may have been set, of this host, the other one or the server: a controller that should be dead by its
        last sign of life is watched for a new one.

        Returns:
            The fencing number and count of commits as they stand; they must still be so when the sweep is taken.
        """
        holder = self._holder(sweep_id)
        if holder is None:
            return 0, 0
        seen, deadline = (holder["fence"], holder["commits"]), time.monotonic() + WATCH_SECONDS
        while holder and holder["held"]:
            if _is_alive(holder) or (holder["fence"], holder["commits"]) != seen:
                raise self._refusal(sweep, holder)
            if holder["host"] == socket.gethostname() or time.monotonic() > deadline:
                break
            time.sleep(WATCH_SECONDS / 20)
            holder = self._holder(sweep_id)
        return seen

    def _write(self) -> Any:
        return self._engine.execution_options(write=True).begin()

    def _insert_sweep(self, spec: SweepSpec, environment: Mapping[str, Any]) -> bool:
        row = {
            "name": spec.name,
            "spec": codec.dumps(spec.to_dict()),
            "environment": codec.dumps(environment),
            "state": "interrupted",
            "created": time.time(),
        }
        try:
            with translated(self.name), self._write() as connection:
                if (
                    connection.scalar(sa.select(SWEEPS.c.id).where(SWEEPS.c.name == spec.name))
                    is not None
                ):
                    return False
                connection.execute(SWEEPS.insert(), row)
        except StoreError as error:
            if isinstance(error.__cause__, sa.exc.IntegrityError):
                return False
            raise
        return True

    def _update_sweep(self, sweep: str, **values: Any) -> None:
        row = self._row(sweep)
        with translated(self.name), self._write() as connection:
            connection.execute(SWEEPS.update().where(SWEEPS.c.id == row["id"]).values(values))

    def _rows(self, query: sa.Select[Any]) -> list[Mapping[str, Any]]:
        rows = reading(
            self._engine, self.name, lambda connection: connection.execute(query).mappings().all()
        )
        return [dict(row) for row in rows]

    def _row(self, sweep: str) -> Mapping[str, Any]:
        rows = self._rows(sa.select(SWEEPS).where(SWEEPS.c.name == sweep))
        if not rows:
            from search_spaces.plugins import nearest

            known = [info.name for info in self.sweeps()]
            hint = nearest(sweep, known) if known else "it has no sweeps yet"
            raise UsageError(f"there is no sweep named {sweep!r} in {self.name}: {hint}")
        return rows[0]

    def _holder(
        self, sweep_id: int, connection: sa.Connection | None = None
    ) -> Mapping[str, Any] | None:
        """The holder's row, with the time `now` on the clock of its `heartbeat`."""
        if connection is None:
            return reading(
                self._engine, self.name, lambda connection: self._holder(sweep_id, connection)
            )
        now = (
            sa.literal(clock(connection))
            if isinstance(clock(connection), float)
            else clock(connection)
        )
        query = sa.select(HOLDERS, now.label("now")).where(HOLDERS.c.sweep == sweep_id)
        found = connection.execute(query).mappings().first()
        return dict(found) if found else None

    def _state(self, row: Mapping[str, Any]) -> str:
        if row["state"] != "running":
            return str(row["state"])
        holder = self._holder(row["id"])
        return "running" if holder and holder["held"] and _is_alive(holder) else "interrupted"

    def _refusal(self, sweep: str, holder: Mapping[str, Any] | None) -> StoreError:
        who = f"process {holder['pid']} on {holder['host']}" if holder else "another process"
        return StoreError(
            f"sweep {sweep!r} is held by {who}: wait for it, or stop it with `automl stop {sweep}`"
        )

    def _trials(self, sweep_id: int) -> list[Trial]:
        columns = (
            REPORTS.c.trial,
            REPORTS.c.attempt,
            REPORTS.c.sequence,
            REPORTS.c.step,
            REPORTS.c.seconds,
        )
        key = (REPORTS.c.trial, REPORTS.c.attempt, REPORTS.c.sequence)
        reports = (
            sa.select(*columns, REPORTS.c.metrics).where(REPORTS.c.sweep == sweep_id).order_by(*key)
        )
        trials = sa.select(TRIALS).where(TRIALS.c.sweep == sweep_id).order_by(TRIALS.c.number)

        def read(connection: sa.Connection) -> list[Trial]:
            points: dict[int, tuple[ReportPoint, ...]] = {}
            rows = [dict(row) for row in connection.execute(trials).mappings()]
            for trial, attempt, sequence, step, seconds, metrics in connection.execute(reports):
                point = ReportPoint(step, codec.metrics_of(metrics), seconds, attempt, sequence)
                points[trial] = lineage(points.get(trial, ()), point)
            return [codec.trial_of(row, points.get(row["number"], ())) for row in rows]

        with decoding(self.name):
            return reading(self._engine, self.name, read)


def check_name(name: str) -> None:
    """Raise UsageError where a sweep may not be named so: the name is also that of a folder."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"a sweep's name is 1 to 64 letters, digits, '_', '.' or '-', the first a letter or digit, got {name!r}"
        )


def _is_alive(holder: Mapping[str, Any]) -> bool:
    return alive(
        holder["host"],
        holder["pid"],
        holder["process_started"],
        holder["now"] - holder["heartbeat"],
    )


def _candidates(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        suffix = f"-{number}"
        yield name[: 64 - len(suffix)] + suffix
        number += 1
