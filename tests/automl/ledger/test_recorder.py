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
from resealed import change_holders

from automl.core.events import Begun, Command, Ended, Moved, Noted, Proposed
from automl.core.trial import TrialState
from automl.errors import StoreError
from automl.ledger import Ledger
from automl.ledger.batch import make_batch
from automl.ledger.recorder import Recorder
from automl.ledger.schema import EVENTS, HOLDERS, REPORTS, SWEEPS
from workers.protocol import Ending, Outcome, Report, Started


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    kept = Ledger.open(tmp_path, create=True)
    kept.create_sweep(make_spec())
    return kept


def rows(ledger: Ledger, table: sa.Table) -> list[dict[str, Any]]:
    with ledger._engine.connect() as connection:
        return [dict(row) for row in connection.execute(sa.select(table)).mappings()]


def test_a_commit_adds_each_event_and_report_once(ledger: Ledger) -> None:
    recorder = ledger.acquire("test")
    assert recorder.trials == []
    record(ledger, "test", Proposed(0, {"lr": 0.1}, "bayes"), Begun(0, 1, 1.5))
    record(ledger, "test", Started(0, 1, "host:7\0"))
    crash = Outcome(0, 1, Ending.FAILED, failure="crashed", message="signal 9\0", seconds=2.0)
    record(ledger, "test", Ended(crash, TrialState.WAITING, at=3.5), Begun(0, 2, 4.5))
    assert recorder.begun(recorder.trials[0]) == 4.5
    record(
        ledger,
        "test",
        Moved(0, TrialState.INTERRUPTED, "lost\0", 6.0, seconds=1.0),
        Moved(0, TrialState.WAITING),
    )
    record(ledger, "test", Begun(0, 3, 7.0), Report(0, 3, 0, 1, {"loss": 1.0}, 1.0))
    done = Outcome(0, 3, Ending.COMPLETED, {"loss": 1.0}, seconds=3.0)
    record(ledger, "test", Ended(done, TrialState.FAILED, "non_finite", "no", at=9.0))
    assert [row["kind"] for row in rows(ledger, EVENTS)] == [
        "Proposed", "Begun", "Started", "Ended", "Begun", "Moved", "Moved", "Begun", "Ended",
    ]  # fmt: skip
    assert len(rows(ledger, REPORTS)) == 1
    assert ledger.trials("test") == recorder.trials


def test_nothing_is_written_before_the_commit_and_all_of_it_once(ledger: Ledger) -> None:
    recorder = ledger.acquire("test")
    assert recorder.uncommitted == 0
    recorder.apply(Proposed(0, {"lr": 0.1}, "bayes"))
    assert recorder.apply(Proposed(0, {"lr": 0.2}, "bayes")) is None
    assert recorder.uncommitted == 1
    assert rows(ledger, EVENTS) == []
    with pytest.raises(StoreError, match="the next trial of the sweep is 1, got 5"):
        recorder.apply(Proposed(5, {"lr": 0.1}, "bayes"))
    recorder.commit(3.0, state="finished", status={"busy_slots": math.inf})
    recorder.commit()
    assert recorder.uncommitted == 0
    assert len(rows(ledger, EVENTS)) == 1
    (sweep,), (holder,) = rows(ledger, SWEEPS), rows(ledger, HOLDERS)
    assert (sweep["seconds"], sweep["state"]) == (3.0, "finished")
    assert (holder["commits"], holder["status"], holder["held"], holder["fence"]) == (
        2,
        '{"busy_slots":"inf"}',
        1,
        1,
    )
    ledger.release("test")
    ledger.acquire("test")
    (holder,) = rows(ledger, HOLDERS)
    assert (holder["commits"], holder["status"], holder["held"], holder["fence"]) == (0, "{}", 1, 2)


def test_an_attempt_that_is_not_committed_began_never(ledger: Ledger) -> None:
    recorder = ledger.acquire("test")
    recorder.apply(Proposed(0, {"lr": 0.1}, "bayes"))
    trial = recorder.apply(Begun(0, 1, 1.5))
    assert trial is not None
    assert recorder.begun(trial) == 0.0
    recorder.commit()
    assert recorder.begun(trial) == 1.5


def test_each_sweep_has_its_own_attempts_and_notes(ledger: Ledger) -> None:
    ledger.create_sweep(make_spec())
    for name, begun in (("test", 1.5), ("test-2", 7.5)):
        recorder = ledger.acquire(name)
        record(
            ledger,
            name,
            Proposed(0, {"lr": 0.1}, "bayes"),
            Begun(0, 1, begun),
            Noted("fallback", name),
        )
        assert recorder.begun(recorder.trials[0]) == begun
        assert [event.message for event in ledger.events(name) if isinstance(event, Noted)] == [
            name
        ]


def test_a_commit_whose_answer_was_lost_is_made_once(ledger: Ledger) -> None:
    recorder = ledger.acquire("test")
    recorder.apply(Proposed(0, {"lr": 0.1}, "bayes"))
    batch = make_batch(1, recorder._events, recorder.trials, recorder._totals, 0.0)
    recorder._batch = batch
    recorder._commit_once(batch, {}, None)  # committed, but nobody heard of it
    recorder.commit()
    assert len(rows(ledger, EVENTS)) == 1
    recorder.commit()
    change_holders(ledger._engine, commits=7)
    with pytest.raises(StoreError, match="another controller has taken the sweep over"):
        recorder.commit()


def test_who_was_fenced_off_frees_nothing(ledger: Ledger) -> None:
    old = ledger.acquire("test")
    change_holders(ledger._engine, fence=9)
    old.release()
    assert rows(ledger, HOLDERS)[0]["held"] == 1
    assert old._connection.closed


def test_a_release_that_cannot_be_written_is_told_and_frees_the_lock(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    held = ledger.acquire("test")
    with closing(sqlite3.connect(ledger.name)) as connection:
        connection.execute("DROP TABLE holders")
    with caplog.at_level(logging.WARNING):
        held.release()
    assert "holders" in caplog.text
    assert isinstance(held, Recorder)
    assert held._lock is not None
    assert held._lock._file == -1


def test_to_look_for_commands_opens_no_connection(ledger: Ledger) -> None:
    """It happens at each proposal, and to open one takes longer than to look."""
    recorder = ledger.acquire("test")
    recorder.new_commands()
    opened = []
    sa.event.listen(ledger._engine, "connect", lambda *args: opened.append(args))
    assert recorder.new_commands(refresh=True) == []
    assert opened == []
    ledger.send("test", Command("enqueue", {"lr": 0.01}))
    assert [command.kind for _, command in recorder.new_commands(refresh=True)] == ["enqueue"]
    assert recorder.new_commands(refresh=True) == []


def test_a_snapshot_is_of_one_instant(ledger: Ledger) -> None:
    ledger.acquire("test")
    record(ledger, "test", Proposed(0, {"lr": 0.1}, "bayes"), Begun(0, 1, 1.5))
    begun = []
    sa.event.listen(ledger._engine, "begin", begun.append)
    found = ledger.snapshot("test")
    assert len(begun) == 1
    assert (found.state, len(found.trials)) == ("running", 1)
    ledger.close()
    found = ledger.snapshot("test")
    assert (found.state, len(found.trials)) == ("interrupted", 1)
