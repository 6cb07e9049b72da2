"""The engines of SQLAlchemy: of a SQLite file, of memory, of a server; and the tables in them."""

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.pool import NullPool, StaticPool

from automl.errors import StoreError
from workers.files.disk import flush

from .records import check_seal, seal
from .schema import META, METADATA, VERSION
from .sqlite_files import FileConnection, newer
from .store_errors import damaged, translate_decoding_errors

IN_MEMORY: Final = "sqlite://"
_SCHEMA_LOCK: Final = 0x6175746F6D6C


def memory_engine() -> sa.Engine:
    """An engine of a new database in memory."""
    return _sqlite_engine(StaticPool)


def checked_version(engine: sa.Engine, name: str) -> int:
    """The version of the schema.

    Raises:
        StoreError: there is no version, or it is newer than this program knows.
    """
    row = version_row(engine)
    if row is None:
        raise StoreError(
            f"{name} is no ledger of automl: it has no schema version. It was left as it is"
        )
    text = str(row["value"])
    if text.isdecimal() and int(text) > VERSION:
        raise newer(name, text)
    with translate_decoding_errors(name):
        if "sum" in row and text != "3":  # `migrations` checks the sums of schema 3
            check_seal("meta", row, f"its schema version {text[:20]!r}")
    if not text.isdecimal():
        raise damaged(name, f"its schema version is {text[:20]!r}")
    return int(text)


def lock_schema(connection: sa.Connection) -> None:
    """Keep others from creating or migrating tables until the transaction ends.

    On PostgreSQL, two processes that create or change the same table at once collide.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_SCHEMA_LOCK)))


def version_row(engine: sa.Engine) -> Mapping[str, Any] | None:
    """The row of the version, of whatever schema; None if there is no such table or row."""
    query = "SELECT * FROM meta WHERE key = 'schema_version'"
    with engine.connect() as connection:
        try:
            found = connection.exec_driver_sql(query).mappings().first()
        except (sa.exc.OperationalError, sa.exc.ProgrammingError) as error:
            if "no such table" not in str(error) and "does not exist" not in str(error):
                raise
            return None
    return None if found is None else dict(found)


def write_empty(draft: Path) -> None:
    """Write a ledger without sweeps to a file that nobody else uses, and flush it."""
    with closing(sqlite3.connect(draft)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")  # kept in the file's header
    make_tables(plain_engine(lambda: sqlite3.connect(draft)))
    flush(draft)


def plain_engine(creator: Callable[[], sqlite3.Connection]) -> sa.Engine:
    """An engine of a SQLite file that `creator` opens, for each transaction anew."""
    return _sqlite_engine(NullPool, creator)


def create_tables(connection: sa.Connection) -> None:
    """Make the tables of an empty ledger."""
    METADATA.create_all(connection)
    version = seal("meta", {"key": "schema_version", "value": str(VERSION)})
    connection.execute(META.insert(), version)


def make_tables(engine: sa.Engine) -> None:
    """Make the tables, unless there are some."""
    with engine.connect().execution_options(write=True) as connection, connection.begin():
        lock_schema(connection)
        if not sa.inspect(connection).has_table(META.name):
            create_tables(connection)


def server_engine(url: str) -> sa.Engine:
    """An engine of a server."""
    return sa.create_engine(url, pool_pre_ping=True, hide_parameters=True)


def _sqlite_engine(
    pool: type[sa.Pool], creator: Callable[[], sqlite3.Connection] | None = None
) -> sa.Engine:
    """An engine of a file that `creator` opens; without one, of a database in memory."""
    memory = partial(sqlite3.connect, ":memory:", check_same_thread=False)
    engine = sa.create_engine(
        IN_MEMORY, poolclass=pool, creator=creator or memory, hide_parameters=True
    )
    sa.event.listen(engine, "connect", _configure)
    sa.event.listen(engine, "begin", _begin)
    return engine


def _configure(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # `_begin` begins: pysqlite's transactions are deferred
    connection.execute("PRAGMA synchronous=FULL")


def _begin(connection: sa.Connection) -> None:
    """Lock at once for writing: a reader that becomes a writer cannot wait for the lock."""
    opened: Any = connection.connection.dbapi_connection
    if isinstance(opened, FileConnection):
        opened.begin()
    connection.exec_driver_sql(
        "BEGIN IMMEDIATE" if connection.get_execution_options().get("write") else "BEGIN"
    )
