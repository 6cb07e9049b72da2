"""Migrates older schemas: writes the log of each sweep from the tables of before.

A SQLite file is replaced by a new one, and the old file stays in the backup folder; a server's
tables are replaced in one transaction. `tests/automl/ledger/released` has files of every schema.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from automl.core import SweepState
from automl.errors import StoreError
from workers.files.disk import flush
from workers.files.folder import Folder

from . import old_tables
from .drafts import MAX_WAIT_SECONDS, exclusive_draft
from .lease import alive, new_lease
from .records import BEGINNING, Row, apply, chained, decoded, seal
from .schema import create_tables, insert, write_empty
from .sqlite_files import VERSION, Connection, connect, connect_own, copy
from .store_errors import backups_of, translated

_HELD: Final = (
    "SELECT host, pid, process_started, heartbeat FROM holders "
    "JOIN sweeps ON sweeps.id = holders.sweep WHERE held = 1"
)


_SWEEP: Final = ("id", "name", "created")
_HOLDER: Final = (
    "host", "pid", "process_started", "heartbeat", "fence", "held", "status", "commits",
)  # fmt: skip


def upgrade_file(file: Path, version: int) -> None:
    """Replace a SQLite file by a migrated one, and keep the old file in the backup folder.

    Raises:
        StoreError: a controller of an older release still uses the file, or another process has
            locked it, or it is damaged.
        OSError, sqlite3.Error, SQLAlchemyError: the copy fails; the file was left as it is.
    """
    with exclusive_draft(file) as draft, closing(connect(file, timeout=MAX_WAIT_SECONDS)) as old:
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
        write_empty(draft)
        with closing(connect_own(draft)) as new, new.transaction(write=True):
            copy_sweeps(old, new, str(file))
        flush(draft)
        draft.replace(file)
        Folder(file.parent).unlink(f"{file.name}-newest")  # of schema 3
        flush(file.parent)


def upgrade_server(connection: Connection, name: str) -> None:
    """Replace the tables of a server, in the transaction of a connection.

    Raises:
        StoreError: a controller uses them, or they are damaged.
    """
    connection.lock_schema()
    query = "SELECT value FROM meta WHERE key = 'schema_version'"
    if int(connection.execute(query).fetchone()[0]) >= VERSION:
        return
    _refuse_users(connection.execute(_HELD), name)
    found = old_tables.read(connection, name)
    for table in ("reports", "trials", "events", "holders", "attempts", "sweeps", "meta"):
        connection.execute(f"DROP TABLE IF EXISTS {table}")
    create_tables(connection)
    _write(found, connection, name)


def copy_sweeps(old: Connection, new: Connection, name: str) -> None:
    """Write the sweeps of older tables into empty new ones."""
    _write(old_tables.read(old, name), new, name)


def _write(found: old_tables.OldTables, connection: Connection, name: str) -> None:
    with translated(name):
        for sweep in found["sweeps"]:
            rows: list[Row] = []
            place = BEGINNING
            for recorded, event in old_tables.events(found, sweep):
                rows += chained(sweep["id"], place, [event], recorded)
                place = rows[-1].place
            state = SweepState()
            apply(state, decoded(rows))
            insert(connection, "sweeps", [seal("sweep", {k: sweep[k] for k in _SWEEP})])
            insert(connection, "records", [row._asdict() for row in rows])
            holder = next((one for one in found["holders"] if one["sweep"] == sweep["id"]), {})
            lease = new_lease(
                sweep["id"],
                **{name: holder[name] for name in _HOLDER if name in holder},
                seconds=float(sweep["seconds"]),
                num_trials=len(state.trials),
                closed=state.closed,
            )
            insert(connection, "leases", [lease])


def _refuse_users(holders: Iterable[Any], name: str) -> None:
    """Raise StoreError if a holder is alive: host, pid, start of its process and heartbeat."""
    for host, pid, started, heartbeat in holders:
        if alive(host, pid, started, time.time() - heartbeat):
            raise StoreError(
                f"{name}: its schema is older, and process {pid} on {host} still runs a sweep in "
                "it; end that one first"
            )
