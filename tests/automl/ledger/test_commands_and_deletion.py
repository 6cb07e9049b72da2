"""What is done to whole sweeps: two stand side by side, and only one is touched."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from objectives import make_spec, record

from automl.core.budget import Budget
from automl.core.events import Begun, Command, Proposed
from automl.errors import StoreError
from automl.ledger import Ledger
from automl.ledger.schema import EVENTS, HOLDERS, REPORTS, SWEEPS, TRIALS
from workers.protocol import Report

COMMAND = Command("limits", {"lr": [0.1, 0.2]})


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Two sweeps, `one` and `two`, each with a trial."""
    kept = Ledger.open(tmp_path, create=True)
    for name in ("one", "two"):
        kept.create_sweep(replace(make_spec(), name=name))
        recorder = kept.acquire(name)
        record(
            kept,
            name,
            Proposed(0, {"lr": 0.1}, "bayes"),
            Begun(0, 1, 4.0),
            Report(0, 1, 0, 1, {"loss": 1.0}, 1.0),
        )
        recorder.commit(7.0, status={"suggesting": name})
    return kept


def rows(ledger: Ledger) -> dict[str, int]:
    with ledger._engine.connect() as connection:
        tables = (SWEEPS, TRIALS, EVENTS, REPORTS, HOLDERS)
        return {
            t.name: connection.scalar(sa.select(sa.func.count()).select_from(t)) or 0
            for t in tables
        }


def test_a_deleted_sweep_leaves_nothing_and_the_other_all(ledger: Ledger) -> None:
    whole = repr(ledger.trials("two"))
    ledger.release("one")
    before = rows(ledger)
    ledger.delete("one")
    assert rows(ledger) == {name: count // 2 for name, count in before.items()}
    assert not ledger.files("one").path.exists()
    assert ledger.files("two").path.exists()
    assert repr(ledger.trials("two")) == whole
    assert [info.name for info in ledger.sweeps()] == ["two"]
    assert "one" not in ledger._held
    ledger.release("two")
    ledger.create_sweep(replace(make_spec(), name="one"))
    ledger.acquire("one")  # its lock is free


def test_a_sweep_that_is_held_is_not_deleted(ledger: Ledger) -> None:
    before = rows(ledger)
    with pytest.raises(StoreError, match="'one' is held by process"):
        Ledger.open(ledger.files("one").path.parents[1]).delete("one")
    assert rows(ledger) == before


def test_another_spec_is_kept_for_one_sweep(ledger: Ledger) -> None:
    ledger.replace_spec("one", replace(ledger.spec("one"), budget=Budget(trials=99)))
    assert (ledger.spec("one").budget.trials, ledger.spec("two").budget.trials) == (
        99,
        make_spec().budget.trials,
    )


def test_a_sweep_that_runs_shows_what_its_controller_does(ledger: Ledger) -> None:
    assert ledger.snapshot("one").state == "running"
    assert ledger.snapshot("one").suggesting == "one"
    ledger.release("one")
    assert ledger.snapshot("one").state == "interrupted"
    assert ledger.snapshot("one").suggesting == "idle"


def test_commands_reach_their_sweep_once_and_in_order(ledger: Ledger) -> None:
    one, two = ledger._held["one"], ledger._held["two"]
    assert one.new_commands() == two.new_commands() == []
    second = Command("enqueue", {"lr": 0.5})
    ledger.send("one", COMMAND, second)
    assert ledger.commands("one") == [COMMAND, second]
    assert ledger.commands("two") == []
    assert one.new_commands() == [], "nobody has looked"
    found = one.new_commands(refresh=True)
    assert [command for _, command in found] == [COMMAND, second]
    assert one.new_commands(refresh=True) == []
    ledger.send("one", COMMAND)
    assert one.commit() is False, "a command is no request to stop"
    assert [command for _, command in one.new_commands()] == [COMMAND]
    assert two.new_commands(refresh=True) == []
    assert one.executed_commands() == set()
    number = found[1][0]
    record(ledger, "one", Proposed(1, {"lr": 0.5}, "enqueued", command=number))
    assert one.executed_commands() == {number}
    assert two.executed_commands() == set()


def test_commands_wait_for_a_controller_and_reading_one_hides_no_other(ledger: Ledger) -> None:
    ledger.release("one")
    ledger.send("one", COMMAND)
    one, two = ledger.acquire("one"), ledger._held["two"]
    assert [command for _, command in one.new_commands()] == [COMMAND], (
        "asked before anybody held the sweep"
    )
    assert two.new_commands() == []
    ledger.send("one", COMMAND)
    ledger.send("two", COMMAND)
    assert len(one.new_commands(refresh=True)) == 1
    assert [command for _, command in two.new_commands(refresh=True)] == [COMMAND]


def test_a_stop_is_asked_of_one_sweep(ledger: Ledger) -> None:
    ledger.send("one", COMMAND)
    ledger.request_stop("one", by="ann")
    one, two = ledger._held["one"], ledger._held["two"]
    assert one.commit() is True
    stop = Command("stop", {}, by="ann")
    assert [command for _, command in one.new_commands()] == [COMMAND, stop]
    assert one.commit() is True, "reading the command has not cleared it"
    assert two.commit() is False
    ledger.release("one")
    assert ledger.acquire("one").commit() is False, "whoever resumes does not stop at once"


def test_a_ledger_in_memory_has_a_folder_of_its_own() -> None:
    one, two = Ledger.open("sqlite://", create=True), Ledger.open("sqlite://", create=True)
    assert one.files("a").path == one.files("a").path != two.files("a").path
    assert one.files("a").path.parents[1].name.startswith("automl-")
    one.create_sweep(make_spec())
    assert one.acquire("test").commit() is False


def test_a_sweep_that_cannot_be_written_is_told(ledger: Ledger) -> None:
    assert ledger.create_sweep(make_spec()) == "test"
    assert ledger.sweeps()[-1].state == "interrupted", "until somebody conducts it"
    ledger.close()
    with closing(sqlite3.connect(ledger.name)) as connection:
        connection.execute("DROP TABLE sweeps")
    with pytest.raises(StoreError, match="sweeps"):
        ledger.create_sweep(make_spec())
