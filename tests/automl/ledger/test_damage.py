"""A row that is changed, missing or moved is noticed by whoever reads it."""

from __future__ import annotations

import math
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from attacks import flipped_bits
from objectives import make_spec, record

from automl.core.events import Begun, Ended, Noted, Proposed
from automl.core.trial import TrialState
from automl.errors import StoreError
from automl.ledger import Ledger, ledger
from automl.ledger.check import check
from automl.ledger.database import FILE_NAME
from automl.ledger.head import Head
from automl.ledger.records import seal
from automl.ledger.schema import COLUMNS
from workers.protocol import Ending, Outcome

KEYS = {"meta": "key", "sweeps": "id", "leases": "sweep", "snapshots": "sweep"}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two sweeps that is closed; one is empty. Its backups are sound."""
    folder: Path = flipped_bits.make_templates(tmp_path_factory.mktemp("made"))[0]
    store = Ledger.open(folder)
    store.create_sweep(make_spec("empty"))
    store.acquire("test")._cache()
    store.close()
    return folder


@pytest.fixture
def file(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "store")) / FILE_NAME


def change(file: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        assert connection.execute(statement, values).rowcount == 1, statement


def other(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bytes):
        return value[:-1] + bytes([value[-1] ^ 1])
    if isinstance(value, str):
        return value[:-1] + chr(ord(value[-1]) ^ 1) if value else "x"
    return 1 if value is None else value + 1000


def rows(file: Path, table: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """A condition that finds a row of a table, and the row; of each kind of record, one."""
    with closing(sqlite3.connect(file)) as connection:
        connection.row_factory = sqlite3.Row
        grouped = " GROUP BY kind" if table == "records" else ""
        for row in map(dict, connection.execute(f"SELECT * FROM {table}{grouped}").fetchall()):
            keys = [KEYS[table]] if table in KEYS else ["sweep", "number"]
            yield " AND ".join(f"{key} = {row[key]!r}" for key in keys), row


@pytest.mark.parametrize("table", COLUMNS)
def test_every_value_of_every_row_is_covered(file: Path, table: str) -> None:
    assert check(file.parent) == []
    whole, found = file.read_bytes(), list(rows(file, table))
    assert found
    for condition, row in found:
        for column, value in row.items():
            if (table, column) == ("snapshots", "sweep"):
                continue  # a cache of no sweep, which nobody reads
            file.write_bytes(whole)
            change(file, f"UPDATE {table} SET {column} = ? WHERE {condition}", other(value))
            assert check(file.parent), (condition, column)


@pytest.mark.parametrize("table", ["meta", "sweeps", "records"])
def test_every_row_that_is_missing_is_noticed(file: Path, table: str) -> None:
    whole = file.read_bytes()
    for condition, _ in rows(file, table):
        file.write_bytes(whole)
        change(file, f"DELETE FROM {table} WHERE {condition}")
        assert check(file.parent), condition


def test_records_in_another_order_are_noticed(file: Path) -> None:
    for before, after in ((5, 9999), (6, 5), (9999, 6)):
        change(file, f"UPDATE records SET number = {after} WHERE sweep = 1 AND number = {before}")
    assert "record 5 of sweep 'test' has another checksum" in check(file.parent)[0]


def test_a_record_of_another_sweep_is_no_record_of_this_one(file: Path) -> None:
    change(file, "DELETE FROM records WHERE sweep = 1 AND number = 1")
    change(file, "UPDATE records SET sweep = 1 WHERE sweep = 2")
    assert "record 1 of sweep 'test' has another checksum" in check(file.parent)[0]


@pytest.mark.parametrize(
    "name", ["snapshot", "state", "trials", "acquire", "events", "commands", "trial_events"]
)
def test_whoever_reads_a_damaged_record_says_which(file: Path, name: str) -> None:
    kind = "Command" if name == "commands" else "Begun"
    numbers = f"SELECT min(number) FROM records WHERE kind = '{kind}'"
    where = f"sweep = 1 AND number = ({numbers})"
    change(file, f"UPDATE records SET payload = replace(payload, '1', '2') WHERE {where}")
    store = Ledger.open(file.parent)
    with pytest.raises(StoreError, match=r"is damaged \(record \d+ of sweep 'test' has another"):
        list(getattr(store, name)("test", *([0] if name == "trial_events" else ())))
    store.close()


def test_the_sweeps_are_counted(file: Path) -> None:
    change(file, "DELETE FROM sweeps WHERE name = 'empty'")
    with pytest.raises(StoreError, match="sweep 2 is missing"):
        Ledger.open(file.parent).sweeps()
    with pytest.raises(StoreError, match="sweep 2 is missing"):
        Ledger.open(file.parent).spec("empty")


def test_a_head_that_was_damaged_is_told_and_holds_nobody_up(file: Path) -> None:
    head = file.with_name(f"{FILE_NAME}-head")
    head.write_bytes(b"x" * 100)
    assert set(Head(file).read().values()) == {None}
    assert "the record of the newest commit of sweep 1 has another checksum" in str(
        check(file.parent)
    )
    assert len(Ledger.open(file.parent, readonly=True).trials("test")) == flipped_bits.NUM_TRIALS
    head.write_bytes(bytes((1 << 24) + 1))
    with pytest.raises(StoreError, match="more than 16777216 bytes"):
        Head(file).read()


@pytest.mark.parametrize("sweep", [-5, 600_000, 2**60])
def test_a_sweep_of_any_id_is_held_written_and_deleted(tmp_path: Path, sweep: int) -> None:
    """The id comes from the store, so it may be any number; the head knows only small ones."""
    store = Ledger.open(tmp_path, create=True)
    store.create_sweep(make_spec())
    (tmp_path / f"{FILE_NAME}-head").unlink()
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection, connection:
        row = connection.execute("SELECT name, created FROM sweeps").fetchone()
        sealed = seal("sweep", {"id": sweep, "name": row[0], "created": row[1]})
        connection.execute("UPDATE sweeps SET id = :id, sum = :sum", sealed)
        connection.execute("DELETE FROM records")
    store.acquire("test")
    record(store, "test", Noted("test", "a note", at=1.0))
    store.release("test")
    assert [event.kind for event in store.events("test") if isinstance(event, Noted)] == ["test"]
    store.delete("test")
    assert store.sweeps() == []
    assert check(tmp_path) == []


def test_a_sweep_that_could_not_be_taken_is_free(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*args: object, **named: object) -> None:
        raise OverflowError("injected")

    store = Ledger.open(file.parent)
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "Recorder", failing)
        with pytest.raises(StoreError, match="injected"):
            store.acquire("test")
    store.acquire("test")
    store.close()


def test_whatever_a_worker_tells_is_kept_as_json(tmp_path: Path) -> None:
    told = {
        "nested": [math.nan, None, {1: -math.inf}],
        "path": Path("/x"),
        "set": {7},
        "true": True,
    }
    outcome = Outcome(0, 1, Ending.FAILED, {"loss": math.inf}, "crashed", details=told)
    store = Ledger.open(tmp_path, create=True)
    store.create_sweep(make_spec())
    store.acquire("test")
    ended = Ended(outcome, TrialState.FAILED, "crashed", at=2.0)
    record(store, "test", Proposed(0, {"lr": 0.1}, "bayes"), Begun(0, 1, 1.0), ended)
    (trial,) = Ledger.open(tmp_path, readonly=True).trials("test")
    assert trial.details == {
        "nested": ["nan", None, {"1": "-inf"}],
        "path": "/x",
        "set": [7],
        "true": True,
    }
    assert (trial.metrics["loss"], trial.state) == (math.inf, TrialState.FAILED)
    store.close()
