"""What a commit writes, beside the trials themselves."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from objectives import make_spec
from resealed import change_leases

from automl.core.events import Begun, Command, Proposed
from automl.errors import StoreError
from automl.ledger import Hold, Ledger
from automl.ledger.database import SWEEPS


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    kept = Ledger.open(tmp_path, create=True)
    kept.create_sweep(make_spec())
    return kept


def rows(ledger: Ledger, table: sa.Table) -> list[dict[str, Any]]:
    with ledger._database.transaction() as connection:
        return [dict(row) for row in connection.execute(sa.select(table)).mappings()]


def test_a_commit_whose_answer_was_lost_is_made_once(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = ledger.hold("test")
    recorder.state.apply(Proposed(0, {"lr": 0.1}, "bayes"))
    run = ledger._database.run

    def lost(action: Any, *, write: bool = False) -> Any:
        run(action, write=write)
        monkeypatch.undo()
        raise StoreError("the answer was lost")

    monkeypatch.setattr(ledger._database, "run", lost)
    with pytest.raises(StoreError, match="the answer was lost"):
        recorder.commit()
    enqueued = Command("enqueue", {"lr": 0.5})
    (number,) = ledger.append("test", enqueued)
    recorder.look()
    recorder.state.apply(Begun(0, 1, 1.5))
    recorder.commit()
    kinds = [type(event).__name__ for event in ledger.events("test")]
    assert kinds == ["Created", "Proposed", "Command", "Begun"]
    assert (recorder.state.requests, recorder.state.number) == ({number: enqueued}, 4)
    change_leases(ledger._database, fence=7)
    with pytest.raises(StoreError, match="another controller has taken the sweep over"):
        recorder.commit()


def test_who_was_fenced_off_frees_nothing(ledger: Ledger) -> None:
    old = ledger.hold("test")
    change_leases(ledger._database, fence=9)
    old.release()
    assert rows(ledger, SWEEPS)[0]["held"] == 1


def test_a_release_that_cannot_be_written_is_told_and_frees_the_lock(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    held = ledger.hold("test")
    with closing(sqlite3.connect(ledger.name)) as connection:
        connection.execute("DROP TABLE sweeps")
    with caplog.at_level(logging.WARNING):
        held.release()
    assert "sweeps" in caplog.text
    assert isinstance(held, Hold)
    assert held._lock is not None
    assert held._lock.closed
