"""Changes rows of a ledger behind its back, and gives them their sums."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from automl.ledger.database import Database
from automl.ledger.old_tables import _SUMS
from automl.ledger.records import checksum, seal
from automl.ledger.schema import as_dict, select


def change_leases(database: Database, **values: Any) -> None:
    """Change every row of `leases`."""
    with database.transaction(write=True) as connection:
        locking = " FOR UPDATE" if connection.is_server else ""
        for row in connection.execute(select("leases") + locking).fetchall():
            plain = {k: v for k, v in as_dict("leases", row).items() if k != "sum"}
            sealed = seal("lease", plain | values)
            changes = ", ".join(f"{name} = :{name}" for name in sealed)
            connection.execute(f"UPDATE leases SET {changes} WHERE sweep = :sweep", sealed)


def change_version(database: Database, value: str) -> None:
    """Give the schema another version."""
    with database.transaction(write=True) as connection:
        row = seal("meta", {"key": "schema_version", "value": value})
        connection.execute("UPDATE meta SET value = :value, sum = :sum WHERE key = :key", row)


def copy_tables(file: Path, connection: sa.Connection) -> None:
    """Make the tables of a SQLite file on a server, which has none."""
    kinds = {"TEXT": "TEXT", "DOUBLE": "DOUBLE PRECISION"}
    with closing(sqlite3.connect(file)) as source:
        tables = "SELECT name FROM sqlite_master WHERE type = 'table'"
        for (table,) in source.execute(tables).fetchall():
            columns = source.execute(f"PRAGMA table_info({table})").fetchall()
            made = ", ".join(f"{column[1]} {kinds.get(column[2], 'BIGINT')}" for column in columns)
            connection.execute(sa.text(f"CREATE TABLE {table} ({made})"))
            names = [column[1] for column in columns]
            values = ", ".join(f":{name}" for name in names)
            for row in source.execute(f"SELECT {', '.join(names)} FROM {table}"):
                insert = sa.text(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({values})")
                connection.execute(insert, dict(zip(names, row, strict=True)))


def change_old_holders(file: Path, state: str = "", **values: Any) -> None:
    """Change every row of `holders`, and the state of every sweep, in a file of schema 1 to 3."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.row_factory = sqlite3.Row
        if state:
            connection.execute("UPDATE sweeps SET state = ?", [state])
        for name, value in values.items():
            connection.execute(f"UPDATE holders SET {name} = ?", [value])
        for label, table, key, target in (
            ("holder", "holders", "sweep", "sum"),
            ("progress", "sweeps", "id", "progress_sum"),
        ):
            for row in map(dict, connection.execute(f"SELECT * FROM {table}").fetchall()):
                if target in row:
                    total = checksum(label, *(row[name] for name in _SUMS[label].split()))
                    change = f"UPDATE {table} SET {target} = ? WHERE {key} = ?"
                    connection.execute(change, [total, row[key]])
