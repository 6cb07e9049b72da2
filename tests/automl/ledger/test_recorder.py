"""What a commit writes, beside the trials themselves."""

from __future__ import annotations

import logging
import math
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from objectives import make_spec, record
from resealed import change_leases

from automl.core.events import Begun, Closed, Command, Ended, Moved, Proposed
from automl.core.trial import TrialState
from automl.errors import StoreError
from automl.ledger import Hold, Ledger
from automl.ledger.database import RECORDS, SWEEPS
from workers.protocol import Ending, Outcome, Report, Started


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    kept = Ledger.open(tmp_path, create=True)
    kept.create_sweep(make_spec())
    return kept


def rows(ledger: Ledger, table: sa.Table) -> list[dict[str, Any]]:
    with ledger._database.transaction() as connection:
        return [dict(row) for row in connection.execute(sa.select(table)).mappings()]


def test_a_commit_adds_each_event_and_report_once(ledger: Ledger) -> None:
    recorder = ledger.hold("test")
    assert recorder.state.trials == []
    record(ledger, "test", Proposed(0, {"lr": 0.1}, "bayes"), Begun(0, 1, 1.5))
    record(ledger, "test", Started(0, 1, "host:7\0"))
    crash = Outcome(0, 1, Ending.FAILED, failure="crashed", message="signal 9\0", seconds=2.0)
    record(ledger, "test", Ended(crash, TrialState.WAITING, at=3.5), Begun(0, 2, 4.5))
    assert recorder.state.use.begun(0) == 4.5
    record(
        ledger,
        "test",
        Moved(0, TrialState.INTERRUPTED, "lost\0", 6.0, seconds=1.0),
        Moved(0, TrialState.WAITING),
    )
    record(ledger, "test", Begun(0, 3, 7.0), Report(0, 3, 0, 1, {"loss": 1.0}, 1.0))
    done = Outcome(0, 3, Ending.COMPLETED, {"loss": 1.0}, seconds=3.0)
    record(ledger, "test", Ended(done, TrialState.FAILED, "non_finite", "no", at=9.0))
    assert [row["kind"] for row in rows(ledger, RECORDS)] == [
        "Created", "Proposed", "Begun", "Started", "Ended", "Begun", "Moved", "Moved", "Begun",
        "Report", "Ended",
    ]  # fmt: skip
    assert ledger.trials("test") == recorder.state.trials


def test_nothing_is_written_before_the_commit_and_all_of_it_once(ledger: Ledger) -> None:
    recorder = ledger.hold("test")
    assert len(recorder.uncommitted) == 0
    recorder.apply(Proposed(0, {"lr": 0.1}, "bayes"))
    assert recorder.apply(Proposed(0, {"lr": 0.2}, "bayes")) is None
    assert len(recorder.uncommitted) == 1
    assert len(rows(ledger, RECORDS)) == 1
    with pytest.raises(StoreError, match="the next trial of the sweep is 1, got 5"):
        recorder.apply(Proposed(5, {"lr": 0.1}, "bayes"))
    recorder.apply(Closed("finished"))
    recorder.commit(3.0, status={"busy_slots": math.inf})
    recorder.commit()
    assert len(recorder.uncommitted) == 0
    assert len(rows(ledger, RECORDS)) == 3
    (lease,) = rows(ledger, SWEEPS)
    assert (lease["seconds"], lease["closed"]) == (3.0, "finished")
    assert (lease["commits"], lease["status"], lease["held"], lease["fence"]) == (
        2,
        '{"busy_slots":"inf"}',
        1,
        1,
    )
    ledger.release("test")
    assert ledger.snapshot("test").state == "finished"
    ledger.hold("test")
    (lease,) = rows(ledger, SWEEPS)
    assert (lease["commits"], lease["status"], lease["held"], lease["fence"]) == (0, "{}", 1, 2)


def test_a_commit_whose_answer_was_lost_is_made_once(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = ledger.hold("test")
    recorder.apply(Proposed(0, {"lr": 0.1}, "bayes"))
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
    recorder.apply(Begun(0, 1, 1.5))
    recorder.commit()
    kinds = [type(event).__name__ for event in ledger.events("test")]
    assert kinds == ["Created", "Proposed", "Command", "Begun"]
    assert recorder.state.requests == {number: enqueued}
    assert recorder.state.number == 4
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
