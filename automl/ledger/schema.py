"""The tables. The truth about a sweep is its records; every row that is read has a CRC32.

If you change a table, raise VERSION: a store of another schema is refused.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from zlib import crc32

from .sqlite_files import Connection
from .store_errors import DamageError

VERSION: Final = 5  # of the schema
_TABLES: Final = """
CREATE TABLE meta (
    key TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);
CREATE TABLE sweeps (
    id {key} NOT NULL PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    created {double} NOT NULL,
    last BIGINT NOT NULL,
    sum BIGINT NOT NULL
);
CREATE TABLE records (
    sweep {key} NOT NULL,
    number BIGINT NOT NULL,
    trial BIGINT,
    kind TEXT NOT NULL,
    recorded {double} NOT NULL,
    payload TEXT NOT NULL,
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
# `sweeps` is the catalogue: a name is a sweep's name for people, `id` that in the other tables, and
# `last` the number of its newest record.
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
    insert(connection, "meta", [{"key": "schema_version", "value": str(VERSION)}])


def insert(connection: Connection, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add rows to a table."""
    names = COLUMNS[table]
    values = ", ".join(f":{name}" for name in names)
    if found := list(rows):
        connection.executemany(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({values})", found)


def update(connection: Connection, table: str, row: Mapping[str, Any], rest: str) -> int:
    """Set every column of the rows that `rest` selects; returns how many there are."""
    changes = ", ".join(f"{name} = :{name}" for name in COLUMNS[table])
    found: int = connection.execute(f"UPDATE {table} SET {changes} {rest}", row).rowcount
    return found


def select(table: str, rest: str = "") -> str:
    """A query for whole rows of a table, in the order of `COLUMNS`."""
    return f"SELECT {', '.join(COLUMNS[table])} FROM {table} {rest}"


def as_dict(table: str, row: Iterable[Any]) -> dict[str, Any]:
    """A row that `select` has found."""
    return dict(zip(COLUMNS[table], row, strict=True))


def checksum(*values: Any) -> int:
    """The CRC32 of some values as `ascii` writes them, which is alike in every Python version."""
    return crc32(ascii(values).encode())


def seal(table: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a table with its sum, which is of all its other values."""
    return {**row, "sum": _sum_of(table, row)}


def check_seal(table: str, row: Mapping[str, Any], what: str) -> None:
    """Raise DamageError if a row of a table has not its sum."""
    if row["sum"] != _sum_of(table, row):
        raise DamageError(f"{what} has another checksum")


def _sum_of(table: str, row: Mapping[str, Any]) -> int:
    return checksum(*(row[name] for name in COLUMNS[table] if name != "sum"))
