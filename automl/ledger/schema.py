"""The tables. The truth about a sweep is its records; every row has a checksum (`records`).

If you change a table, raise VERSION, add a step to `migrations`, and add a file to
`tests/automl/ledger/released`.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from workers.files.disk import flush

from .records import seal
from .sqlite_files import VERSION, Connection, connect_own

_TABLES: Final = """
CREATE TABLE meta (
    key TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL,
    sum BIGINT NOT NULL
);
CREATE TABLE sweeps (
    id {key} NOT NULL PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    created {double} NOT NULL,
    sum BIGINT NOT NULL
);
CREATE TABLE records (
    sweep {key} NOT NULL,
    number BIGINT NOT NULL,
    trial BIGINT,
    kind TEXT NOT NULL,
    recorded {double} NOT NULL,
    payload TEXT NOT NULL,
    previous BIGINT NOT NULL,
    sum BIGINT NOT NULL,
    PRIMARY KEY (sweep, number)
) {clustered};
CREATE INDEX records_of_trial ON records (sweep, trial);
CREATE TABLE leases (
    sweep {key} NOT NULL PRIMARY KEY,
    host TEXT NOT NULL,
    pid BIGINT NOT NULL,
    process_started {double},
    heartbeat {double} NOT NULL,
    fence BIGINT NOT NULL,
    held INTEGER NOT NULL,
    commits BIGINT NOT NULL,
    seconds {double} NOT NULL,
    num_trials BIGINT NOT NULL,
    closed TEXT NOT NULL,
    status TEXT NOT NULL,
    sum BIGINT NOT NULL
);
CREATE TABLE snapshots (
    sweep {key} NOT NULL PRIMARY KEY,
    number BIGINT NOT NULL,
    state {bytes} NOT NULL,
    sum BIGINT NOT NULL
)
"""
# `sweeps` is the catalogue: a name is a sweep's name for people, `id` that in the other tables.
# `records` has the log of every sweep: rows are only added.
# `leases` says who holds a sweep or held it last: `held` and `fence` decide, the rest is for those
# who watch. `snapshots` is a cache of states, which anybody may delete.
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    name: tuple(re.findall(r"^    ([a-z_]+) ", body, re.MULTILINE))
    for name, body in re.findall(r"CREATE TABLE (\w+) \((.*?)\n\)", _TABLES, re.DOTALL)
}


def create_tables(connection: Connection) -> None:
    """Make the tables of an empty ledger."""
    sqlite = {"key": "INTEGER", "double": "DOUBLE", "bytes": "BLOB", "clustered": "WITHOUT ROWID"}
    server = {"key": "BIGINT", "double": "DOUBLE PRECISION", "bytes": "BYTEA", "clustered": ""}
    for statement in _TABLES.format(**server if connection.is_server else sqlite).split(";"):
        connection.execute(statement)
    insert(connection, "meta", [seal("meta", {"key": "schema_version", "value": str(VERSION)})])


def write_empty(draft: Path) -> None:
    """Write a ledger without sweeps to a file that nobody else uses, and flush it."""
    with closing(connect_own(draft)) as connection:
        connection.execute("PRAGMA synchronous=OFF")  # nobody reads a draft before it is flushed
        connection.execute("PRAGMA journal_mode=WAL")  # kept in the file's header
        with connection.transaction(write=True):
            create_tables(connection)
    flush(draft)


def insert(connection: Connection, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add rows to a table."""
    names = COLUMNS[table]
    values = ", ".join(f":{name}" for name in names)
    statement = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({values})"
    if found := list(rows):
        connection.executemany(statement, found)


def select(table: str, rest: str = "") -> str:
    """A query for whole rows of a table, in the order of `COLUMNS`."""
    return f"SELECT {', '.join(COLUMNS[table])} FROM {table} {rest}"


def as_dict(table: str, row: Iterable[Any]) -> dict[str, Any]:
    """A row that `select` has found."""
    return dict(zip(COLUMNS[table], row, strict=True))
