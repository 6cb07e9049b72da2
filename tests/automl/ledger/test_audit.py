"""A row that is changed, missing, old or moved is noticed by whoever reads it."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from automl.core.events import Moved
from automl.core.trial import TrialState
from automl.errors import StoreError
from automl.ledger import Ledger, audit
from automl.ledger.database import FILE_NAME
from automl.ledger.schema import METADATA, SWEEPS

RELEASED = Path(__file__).parent / "released" / "v3.sqlite3"
TABLES = [table.name for table in METADATA.sorted_tables]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return Path(shutil.copy(RELEASED, tmp_path / FILE_NAME))


def damage(file: Path) -> list[str]:
    """What is found in a file."""
    engine = sa.create_engine(f"sqlite:///{file}", poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        return audit.whole(connection)


def other(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, str):
        return value[:-1] + chr(ord(value[-1]) ^ 1) if value else "x"
    return 1 if value is None else value + 1000


def rows(file: Path, table: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """A condition that finds each row of a table, and the row; of each kind of event, one."""
    keys = [column.name for column in METADATA.tables[table].primary_key]
    with closing(sqlite3.connect(file)) as connection:
        connection.row_factory = sqlite3.Row
        grouped = " GROUP BY kind" if table == "events" else ""
        for row in map(dict, connection.execute(f"SELECT * FROM {table}{grouped}").fetchall()[:6]):
            yield " AND ".join(f'"{key}" = {row[key]!r}' for key in keys), row


def test_a_ledger_that_was_written_is_sound(file: Path) -> None:
    assert damage(file) == []


@pytest.mark.parametrize("table", TABLES)
def test_every_value_of_every_row_is_covered(file: Path, table: str) -> None:
    whole = file.read_bytes()
    for condition, row in rows(file, table):
        for column, value in row.items():
            if (table, column) == ("events", "id"):
                continue  # their order counts: see below
            file.write_bytes(whole)
            with closing(sqlite3.connect(file)) as connection, connection:
                statement = f'UPDATE {table} SET "{column}" = ? WHERE {condition}'
                connection.execute(statement, [other(value)])
            assert damage(file), (condition, column)


@pytest.mark.parametrize("table", TABLES)
def test_every_row_that_is_missing_is_noticed(file: Path, table: str) -> None:
    whole = file.read_bytes()
    for condition, _ in rows(file, table):
        file.write_bytes(whole)
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute(f"DELETE FROM {table} WHERE {condition}")
        assert damage(file), condition


def test_a_row_as_it_was_before_is_noticed(tmp_path: Path) -> None:
    """A page that was not written: its rows have their sums, but of an earlier time."""
    shutil.copy(RELEASED, tmp_path / FILE_NAME)
    old = dict(rows(tmp_path / FILE_NAME, "trials"))
    ledger = Ledger.open(tmp_path)
    recorder = ledger.acquire("nmt")
    recorder.apply(Moved(2, TrialState.STOPPED, at=9.0))
    recorder.commit()
    ledger.close()
    condition, row = next((c, r) for c, r in old.items() if r["number"] == 2)
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection, connection:
        values = ", ".join(f'"{name}" = ?' for name in row)
        connection.execute(f"UPDATE trials SET {values} WHERE {condition}", list(row.values()))
    with pytest.raises(StoreError, match="records of the trials of sweep 'nmt' are missing or old"):
        Ledger.open(tmp_path).trials("nmt")


def test_events_in_another_order_are_noticed(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE events SET id = 1000 WHERE id = 2")
    assert damage(file) == ["an event before event 3 of sweep 'nmt' is missing"]


@pytest.mark.parametrize("name", ["snapshot", "trials", "acquire", "events", "spec", "commands"])
def test_whoever_reads_a_damaged_row_says_which(file: Path, name: str) -> None:
    change = {
        "spec": "UPDATE sweeps SET spec = replace(spec, '12', '13')",
        "commands": "UPDATE events SET payload = replace(payload, '128', '129')",
        "events": "UPDATE events SET payload = replace(payload, 'lost', 'last')",
    }.get(name, "UPDATE trials SET metrics = replace(metrics, '2.5', '3.5') WHERE number = 3")
    with closing(sqlite3.connect(file)) as connection, connection:
        assert connection.execute(change).rowcount
    ledger = Ledger.open(file.parent)
    with pytest.raises(StoreError, match=r"is damaged \(.*sweep 'nmt' has another checksum"):
        list(getattr(ledger, name)("nmt") or ())
    ledger.close()


def test_the_sweeps_are_counted(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(f"DELETE FROM {SWEEPS.name} WHERE name = 'empty'")
    with pytest.raises(StoreError, match="a sweep is missing"):
        Ledger.open(file.parent).sweeps()
    with pytest.raises(StoreError, match="a sweep is missing"):
        Ledger.open(file.parent).spec("empty")
