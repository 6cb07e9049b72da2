"""What is done to whole sweeps: two stand side by side, and only one is touched."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from objectives import commands_of, make_spec, record

from automl.core.events import Begun, Command, Proposed
from automl.errors import StoreError
from automl.ledger import Ledger
from automl.ledger.database import RECORDS, SWEEPS
from workers.protocol import Report

COMMAND = Command("limits", {"lr": [0.1, 0.2]})


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Two sweeps, `one` and `two`, each with a trial."""
    kept = Ledger.open(tmp_path, create=True)
    for name in ("one", "two"):
        kept.create_sweep(replace(make_spec(), name=name))
        recorder = kept.hold(name)
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
    with ledger._database.transaction() as connection:
        return {
            table.name: connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0
            for table in (SWEEPS, RECORDS)
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
    ledger.hold("one")  # its lock is free


def test_a_sweep_that_is_held_is_not_deleted(ledger: Ledger) -> None:
    before = rows(ledger)
    with pytest.raises(StoreError, match="'one' is held by process"):
        Ledger.open(ledger.files("one").path.parents[1]).delete("one")
    assert rows(ledger) == before


def test_many_that_append_at_once_make_one_log(ledger: Ledger) -> None:
    """Two send commands, each with its own connection, while the controller commits."""
    store = ledger.files("one").path.parents[1]
    one = ledger._held["one"]
    numbers: list[int] = []

    def send(by: str) -> None:
        other = Ledger.open(store)
        for place in range(20):
            numbers.extend(other.append("one", Command("enqueue", {"lr": 0.1}, place, by=by)))
        other.close()

    threads = [threading.Thread(target=send, args=(by,)) for by in ("ann", "bob")]
    for thread in threads:
        thread.start()
    step = 1
    while any(thread.is_alive() for thread in threads):
        record(ledger, "one", Report(0, 1, step, step + 1, {"loss": 1.0}, 1.0))
        step += 1
    for thread in threads:
        thread.join()
    one.commit()
    assert len(set(numbers)) == 40
    assert list(one.state.requests) == sorted(numbers)
    assert len(ledger.trials("one")[0].reports) == step
    for by in ("ann", "bob"):
        assert [c.trial for c in commands_of(ledger, "one") if c.by == by] == list(range(20))
