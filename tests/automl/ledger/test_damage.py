"""A row that is changed, missing or moved is named by whoever reads it, and never believed."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from objectives import make_spec, record

from automl.cli import cli
from automl.core import Begun, Command, Ended, Proposed, TrialState
from automl.errors import StoreError
from automl.ledger import Ledger
from automl.ledger.database import FILE_NAME, VERSION
from automl.workflows.doctor import _store
from workers.protocol import Ending, Outcome, Report, Started

NUM_TRIALS = 9
NUM_FLIPS = 120


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


def seen(folder: Path) -> str:
    """What people are shown of a store."""
    with closing(Ledger.open(folder, readonly=True)) as store:
        sweeps = ("test", "empty")
        events = [list(store.events(name)) for name in sweeps]
        specs = [store.spec(name) for name in sweeps]
        trials = [store.read("test", after=i) for i in range(3)]
        shown = store.snapshot("test")
        return repr((sweeps, events, specs, trials, store.trials("test"), shown.best))


def problem(file: Path) -> str:
    """What is said of a store that is read as a whole."""
    try:
        with closing(Ledger.open(file.parent, readonly=True)) as store:
            store.check()
    except StoreError as error:
        return str(error)
    return ""


def read_and_resumed(file: Path, truth: str, place: int) -> str:
    """What is said of a store with one flipped bit; "" if it is as it was."""
    try:
        assert seen(file.parent) == truth, f"bit {place}: another value was shown"
        with closing(Ledger.open(file.parent)) as store:
            store.hold("test")
        assert seen(file.parent) == truth, f"bit {place}: another value after a resume"
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


def test_of_120_flipped_bits_none_is_believed(file: Path) -> None:
    """Anywhere in the file: either all is read as it was, or the store is said to be damaged."""
    rng = random.Random(0)
    truth, whole = seen(file.parent), file.read_bytes()
    found: Counter[str] = Counter()
    for _ in range(NUM_FLIPS):
        data = bytearray(whole)
        place = rng.randrange(8 * len(data))
        data[place // 8] ^= 1 << place % 8
        put(file, data)
        told = read_and_resumed(file, truth, place)
        found["named" if told else "as it was"] += 1
        if told:
            assert FILE_NAME in told
            assert "--store" in told or "is no ledger of automl" in told, told
    assert min(found["as it was"], found["named"]) > 5, found


def test_the_last_records_are_missed_too(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("DELETE FROM records WHERE sweep = 1 AND number > 40")
    assert "record 41 of sweep 'test' is missing" in problem(file)
    store = Ledger.open(file.parent)
    for read in (store.spec, store.trials, store.hold, lambda name: list(store.events(name))):
        with pytest.raises(StoreError, match="record 41 of sweep 'test' is missing"):
            read("test")
    store.close()


def test_records_in_another_order_are_noticed(file: Path) -> None:
    for before, after in ((5, 9999), (6, 5), (9999, 6)):
        change(file, f"UPDATE records SET number = {after} WHERE sweep = 1 AND number = {before}")
    assert "record 5 of sweep 'test' has another checksum" in problem(file)


def test_a_record_of_another_sweep_is_no_record_of_this_one(file: Path) -> None:
    change(file, "DELETE FROM records WHERE sweep = 1 AND number = 1")
    change(file, "UPDATE records SET sweep = 1 WHERE sweep = 2")
    assert "record 1 of sweep 'test' has another checksum" in problem(file)


@pytest.mark.parametrize(
    ("column", "value"),
    [("trial", 7), ("kind", "'Noted'"), ("recorded", 7), ("payload", "'[]'"), ("sum", 7)],
)
def test_every_value_of_a_record_is_covered(file: Path, column: str, value: object) -> None:
    change(file, f"UPDATE records SET {column} = {value} WHERE sweep = 1 AND number = 5")
    assert "record 5 of sweep 'test' has another checksum" in problem(file)


@pytest.mark.parametrize("name", ["snapshot", "state", "trials", "hold", "events", "spec", "read"])
def test_whoever_reads_a_damaged_record_says_which(file: Path, name: str) -> None:
    numbers = "SELECT min(number) FROM records WHERE kind = 'Begun'"
    where = f"sweep = 1 AND number = ({numbers})"
    change(file, f"UPDATE records SET payload = replace(payload, '1', '2') WHERE {where}")
    store = Ledger.open(file.parent)
    with pytest.raises(StoreError, match=r"is damaged \(record \d+ of sweep 'test' has another"):
        getattr(store, name)("test")
    store.close()


def test_doctor_reads_the_whole_store(file: Path) -> None:
    assert _store(str(file.parent))[-1] == ""
    data = file.read_bytes()
    put(file, data[:-4096] + bytes(4096))
    assert "is damaged" in _store(str(file.parent))[-1]


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
