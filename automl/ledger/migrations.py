"""Migrates older schemas: a SQLite file as a copy that then replaces it, a server in place.

The old file stays in the backup folder. `tests/automl/ledger/released` has a file of every released
schema.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from automl.errors import StoreError
from workers.files.disk import flush
from workers.files.folder import Folder

from . import backup
from .drafts import WAIT_SECONDS, exclusive_draft
from .lease import alive
from .rows import dumps
from .schema import HOLDERS, META, VERSION
from .sealing import seal_all
from .sqlite_files import connect
from .store_errors import backups_of

if TYPE_CHECKING:
    from alembic.operations import Operations

_SCHEMA_LOCK: Final = 0x6175746F6D6C
_RUNNING: Final = (
    "SELECT host, pid, process_started, heartbeat FROM holders "
    "JOIN sweeps ON sweeps.id = holders.sweep WHERE held = 1 AND sweeps.state = 'running'"
)


def _to_2(op: Operations) -> None:
    """Count commits, to tell a commit whose answer was lost from one that failed."""
    op.add_column(
        "holders", sa.Column("commits", sa.BigInteger(), nullable=False, server_default="0")
    )


def _to_3(op: Operations) -> None:
    """Add checksums; keep the parameters of a proposal with it; drop what the events hold too."""
    numbers = {
        "meta": ["sum"],
        "sweeps": ["num_commands", "commands_total", "sum", "progress_sum"],
        "trials": ["num_reports", "reports_total", "sum"],
        "reports": ["sum"],
        "events": ["previous", "sum"],
        "holders": ["num_trials", "trials_total", "num_events", "last_event", "sum"],
    }
    for table, names in numbers.items():
        for name in names:
            column = sa.Column(name, sa.BigInteger(), nullable=False, server_default="0")
            op.add_column(table, column)
    _keep_params(op.get_bind())
    op.drop_table("attempts")


def _keep_params(connection: sa.Connection) -> None:
    """Copy the parameters of each trial into the event that proposed it."""
    query = (
        "SELECT events.id, payload, params FROM events JOIN trials "
        "ON trials.sweep = events.sweep AND trials.number = events.trial "
        "WHERE events.kind = 'Proposed'"
    )
    change = sa.text("UPDATE events SET payload = :payload WHERE id = :id")
    for row in connection.exec_driver_sql(query).all():
        payload = json.loads(row.payload) | {"params": json.loads(row.params)}
        connection.execute(change, {"id": row.id, "payload": dumps(payload)})


STEPS: Final[Mapping[int, Callable[[Operations], None]]] = {2: _to_2, 3: _to_3}


def lock_schema(connection: sa.Connection) -> None:
    """Keep others from creating or migrating tables until the transaction ends.

    On PostgreSQL, two processes that create or change the same table at once collide.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_SCHEMA_LOCK)))


def upgrade(connection: sa.Connection, version: int) -> None:
    """Migrate the tables from a version to the newest, in the transaction of the connection."""
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    operations = Operations(MigrationContext.configure(connection))
    for step in range(version + 1, VERSION + 1):
        STEPS[step](operations)
    connection.execute(
        META.update().where(META.c.key == "schema_version").values(value=str(VERSION))
    )
    seal_all(connection)


def upgrade_file(file: Path, version: int) -> None:
    """Replace a SQLite file by a migrated copy, and keep the old file in the backup folder.

    Raises:
        StoreError: a controller of an older release still uses the file, or another process has
            locked it.
        OSError, sqlite3.Error, SQLAlchemyError: the copy fails; the file was left as it is.
    """
    with exclusive_draft(file) as draft, closing(connect(file, timeout=WAIT_SECONDS)) as old:
        query = "SELECT value FROM meta WHERE key = 'schema_version'"
        if int(old.execute(query).fetchone()[0]) != version:
            return  # another process was faster
        _refuse_users(old.execute(_RUNNING), str(file))
        # This succeeds only if nobody else has the file open. Then the file is complete.
        mode = old.execute("PRAGMA journal_mode=DELETE").fetchone()[0]
        if mode != "delete":
            raise StoreError(
                f"{file}: its schema is older and another process uses it; "
                "try again when it is idle"
            )
        old.execute("BEGIN IMMEDIATE")
        _replace(file, version, draft)


def upgrade_server(engine: sa.Engine, name: str) -> None:
    """Migrate the tables of a server in one transaction.

    Raises:
        StoreError: a controller uses them.
    """
    with engine.begin() as connection:
        lock_schema(connection)
        query = sa.select(META.c.value).where(META.c.key == "schema_version")
        version = int(connection.scalar(query) or VERSION)
        if version >= VERSION:
            return
        columns = (HOLDERS.c.host, HOLDERS.c.pid, HOLDERS.c.process_started, HOLDERS.c.heartbeat)
        _refuse_users(connection.execute(sa.select(*columns).where(HOLDERS.c.held == 1)), name)
        upgrade(connection, version)


def in_memory(file: Path, version: int, engine: sa.Engine) -> None:
    """Copy a file into an engine in memory and migrate the copy, for reading."""
    with (
        closing(connect(file, "mode=ro")) as old,
        engine.connect() as connection,
    ):
        if old.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("it is damaged")
        target: Any = connection.connection.dbapi_connection
        old.backup(target)
        with connection.begin():
            upgrade(connection, version)


def _refuse_users(holders: Iterable[Any], name: str) -> None:
    """Raise StoreError if a holder is alive: host, pid, start of its process and heartbeat."""
    for host, pid, started, heartbeat in holders:
        if alive(host, pid, started, time.time() - heartbeat):
            raise StoreError(
                f"{name}: its schema is older, and process {pid} on {host} still runs a sweep in "
                "it; end that one first"
            )


def _replace(file: Path, version: int, draft: Path) -> None:
    kept = backups_of(file)[0].with_name(f"{file.name}.v{version}")
    Folder(file.parent, kept.parent.name).make()
    backup.copy(file, kept)
    backup.copy(file, draft)
    engine = sa.create_engine(f"sqlite:///{draft}", poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        upgrade(connection, version)
    with closing(sqlite3.connect(draft)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise StoreError(f"{file}: its migrated copy is not sound; the file was left as it is")
    flush(draft)
    draft.replace(file)
    flush(file.parent)
