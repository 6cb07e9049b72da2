"""Migrates older schemas: writes the log of each sweep from the tables of before.

A SQLite file is replaced by a new one, and the old file stays in the backup folder; a server's
tables are replaced in one transaction. `tests/automl/ledger/released` has files of every schema.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from automl.core import SweepState
from automl.errors import StoreError
from workers.files.disk import flush
from workers.files.folder import Folder

from . import engines, old_tables
from .damage import damage_in
from .drafts import WAIT_SECONDS, exclusive_draft
from .lease import alive, new_lease
from .reader import advance
from .records import BEGINNING, Place, Row, chained, decoded, seal
from .schema import LEASES, META, RECORDS, SWEEPS, VERSION
from .sqlite_files import connect, copy
from .store_errors import backups_of, translate_decoding_errors

_HELD: Final = (
    "SELECT host, pid, process_started, heartbeat FROM holders "
    "JOIN sweeps ON sweeps.id = holders.sweep WHERE held = 1"
)


def upgrade_file(file: Path, version: int) -> None:
    """Replace a SQLite file by a migrated one, and keep the old file in the backup folder.

    Raises:
        StoreError: a controller of an older release still uses the file, or another process has
            locked it, or it is damaged.
        OSError, sqlite3.Error, SQLAlchemyError: the copy fails; the file was left as it is.
    """
    with exclusive_draft(file) as draft, closing(connect(file, timeout=WAIT_SECONDS)) as old:
        query = "SELECT value FROM meta WHERE key = 'schema_version'"
        if int(old.execute(query).fetchone()[0]) != version:
            return  # another process was faster
        _refuse_users(old.execute(f"{_HELD} AND sweeps.state = 'running'"), str(file))
        # This succeeds only if nobody else has the file open. Then the file is complete.
        mode = old.execute("PRAGMA journal_mode=DELETE").fetchone()[0]
        if mode != "delete":
            raise StoreError(
                f"{file}: its schema is older and another process uses it; "
                "try again when it is idle"
            )
        old.execute("BEGIN IMMEDIATE")
        kept = backups_of(file)[0].with_name(f"{file.name}.v{version}")
        Folder(file.parent, kept.parent.name).make()
        copy(file, kept)
        engines.write_empty(draft)
        engine = engines.plain_engine(lambda: sqlite3.connect(draft))
        with engine.execution_options(write=True).begin() as connection:
            _copy(old_tables.read_file(kept, str(file)), connection, str(file))
            if damage := damage_in(connection, str(file), {}):
                raise StoreError(f"{file}: its migrated copy is not sound: {damage[0]}")
        flush(draft)
        draft.replace(file)
        Folder(file.parent).unlink(f"{file.name}-newest")  # of schema 3
        flush(file.parent)


def upgrade_server(engine: sa.Engine, name: str) -> None:
    """Replace the tables of a server in one transaction.

    Raises:
        StoreError: a controller uses them, or they are damaged.
    """
    with engine.begin() as connection:
        engines.lock_schema(connection)
        query = sa.select(META.c.value).where(META.c.key == "schema_version")
        if int(connection.scalar(query) or VERSION) >= VERSION:
            return
        _refuse_users(connection.exec_driver_sql(_HELD), name)
        found = old_tables.read(connection, name)
        for table in ("reports", "trials", "events", "holders", "attempts", "sweeps", "meta"):
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table}")
        engines.create_tables(connection)
        _copy(found, connection, name)


def in_memory(file: Path, engine: sa.Engine) -> None:
    """Write a migrated copy of a file into an engine in memory, for reading."""
    with closing(connect(file, "mode=ro")) as old:
        if old.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("it is damaged")
    with engine.execution_options(write=True).begin() as connection:
        engines.create_tables(connection)
        _copy(old_tables.read_file(file, str(file)), connection, str(file))


def store_log(connection: sa.Connection, rows: list[Row]) -> None:
    """Store the rows of a log, a part at a time."""
    for begin in range(0, len(rows), 1000):
        part = [row._asdict() for row in rows[begin : begin + 1000]]
        connection.execute(RECORDS.insert(), part)


def _copy(found: old_tables.OldTables, connection: sa.Connection, name: str) -> None:
    """Write sweeps of an older schema into empty tables."""
    with translate_decoding_errors(name):
        for sweep in found["sweeps"]:
            rows: list[Row] = []
            place = BEGINNING
            for recorded, event in old_tables.events(found, sweep):
                rows += chained(sweep["id"], place, [event], recorded)
                place = Place(rows[-1].number, rows[-1].sum)
            state = SweepState()
            advance(state, decoded(rows))
            row = {name: sweep[name] for name in ("id", "name", "created")}
            connection.execute(SWEEPS.insert(), seal("sweep", row))
            store_log(connection, rows)
            holder = next((one for one in found["holders"] if one["sweep"] == sweep["id"]), {})
            kept = ("host", "pid", "process_started", "heartbeat", "fence", "held", "status")
            lease = new_lease(
                sweep["id"],
                **{name: holder[name] for name in kept if name in holder},
                commits=holder.get("commits", 0),
                seconds=float(sweep["seconds"]),
                num_trials=len(state.trials),
                closed=state.closed,
            )
            connection.execute(LEASES.insert(), lease)


def _refuse_users(holders: Iterable[Any], name: str) -> None:
    """Raise StoreError if a holder is alive: host, pid, start of its process and heartbeat."""
    for host, pid, started, heartbeat in holders:
        if alive(host, pid, started, time.time() - heartbeat):
            raise StoreError(
                f"{name}: its schema is older, and process {pid} on {host} still runs a sweep in "
                "it; end that one first"
            )
