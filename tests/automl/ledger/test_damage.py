"""A row that is changed, missing or moved is named by whoever reads it, and never believed."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from objectives import make_spec, record

from automl.cli import cli
from automl.core.events import Begun, Command, Ended, Proposed
from automl.core.trial import TrialState
from automl.errors import StoreError
from automl.ledger import Ledger
from automl.ledger.database import FILE_NAME, VERSION
from automl.workflows.doctor import _store
from workers.protocol import Ending, Outcome, Report, Started

NUM_TRIALS = 9


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that is closed, with two sweeps; one is empty."""
    folder = tmp_path_factory.mktemp("made")
    store = Ledger.open(folder, create=True)
    store.create_sweep(make_spec())
    store.create_sweep(make_spec("empty"))
    store.append("test", Command("enqueue", {"lr": 0.01}))
    store.hold("test")
    for number in range(NUM_TRIALS):
        params = {"lr": 0.1 / (number + 3), "optimizer": "adam"}
        outcome = Outcome(number, 1, Ending.COMPLETED, {"loss": 1 / (number + 3)}, seconds=2.0)
        record(store, "test", Proposed(number, params, "bayes", 1.0), Begun(number, 1, 1.5))
        record(store, "test", Started(number, 1, "host:7"))
        record(store, "test", Report(number, 1, 0, 1, {"loss": 1 / (number + 2)}, 1.0))
        record(store, "test", Ended(outcome, TrialState.COMPLETED, at=3.5))
    store.close()
    return folder


@pytest.fixture
def file(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "store")) / FILE_NAME


def problem(file: Path) -> str:
    """What is said of a store that is read as a whole."""
    try:
        with closing(Ledger.open(file.parent, readonly=True)) as store:
            store.check()
    except StoreError as error:
        return str(error)
    return ""


def put(file: Path, data: bytes) -> None:
    """Write the file anew, without what SQLite has kept beside it."""
    for path in file.parent.glob(f"{file.name}*"):
        path.unlink()
    file.write_bytes(data)


def change(file: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        assert connection.execute(statement, values).rowcount == 1, statement


def test_the_last_records_are_missed_too(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("DELETE FROM records WHERE sweep = 1 AND number > 40")
    assert "record 41 of sweep 'test' is missing" in problem(file)
    store = Ledger.open(file.parent)
    for read in (store.spec, store.trials, store.hold, lambda name: list(store.events(name))):
        with pytest.raises(StoreError, match="record 41 of sweep 'test' is missing"):
            read("test")
    store.close()


@pytest.mark.parametrize(
    "change_to", ["kind = 'Nonsense'", "payload = '[]'", "payload = '1,2'", "trial = 'x'"]
)
def test_a_record_that_is_no_event_is_a_store_error(file: Path, change_to: str) -> None:
    change(file, f"UPDATE records SET {change_to} WHERE sweep = 1 AND number = 5")
    assert "is damaged (a record cannot be read: " in problem(file)


def test_a_sweep_whose_row_has_vanished_is_noticed_in_a_sentence(file: Path) -> None:
    change(file, "DELETE FROM sweeps WHERE name = 'test'")
    for words in (["status", "test"], ["trials", "test", "--json"]):
        done = CliRunner().invoke(cli, [*words, "--store", str(file.parent)])
        assert done.exit_code == 2
        assert "the log of a sweep whose row in `sweeps` is missing" in done.output
        assert len(done.output.splitlines()) == 1
    change(file, "DELETE FROM sweeps")
    with pytest.raises(StoreError, match="whose row in `sweeps` is missing"):
        Ledger.open(file.parent).sweeps()


def test_doctor_reads_the_whole_store(file: Path) -> None:
    assert _store(str(file.parent)).lacks == ""
    data = file.read_bytes()
    put(file, data[:-4096] + bytes(4096))
    assert "is damaged" in _store(str(file.parent)).lacks


def test_a_store_of_another_schema_is_refused_in_one_sentence(file: Path) -> None:
    change(file, "UPDATE meta SET value = '5'")
    before = file.read_bytes()
    done = CliRunner().invoke(cli, ["list", "--store", str(file.parent)])
    assert done.exit_code == 2
    assert done.output == (
        f"Error: {file} has schema version '5' and this automl reads only {VERSION}: name another "
        "store with --store, or use the automl that wrote this one\n"
    )
    with pytest.raises(StoreError, match="schema version"):
        Ledger.open(file.parent, create=True)
    assert file.read_bytes() == before
