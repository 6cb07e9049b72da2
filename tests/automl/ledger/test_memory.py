"""The ledger in memory behaves as the one on disk."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from objectives import make_spec

from automl.core.budget import Budget
from automl.core.events import Begun, Closed, Ended, Noted, Proposed
from automl.core.trial import TrialState
from automl.errors import UsageError
from automl.ledger import Ledger, MemoryLedger, SweepLedger
from workers.protocol import Ending, Outcome, Report

EVENTS = [
    Proposed(0, {"lr": 0.1}, "bayes"),
    Begun(0, 1, 2.5),
    Report(0, 1, 0, 1, {"loss": 1.0}, 1.0),
    Noted("fallback", "nothing"),
    Ended(
        Outcome(0, 1, Ending.COMPLETED, {"loss": 0.5}, seconds=2.0), TrialState.COMPLETED, at=4.5
    ),
]


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_committed_events_are_kept(kind: str, tmp_path: Path) -> None:
    ledger: SweepLedger = MemoryLedger() if kind == "memory" else Ledger.open(tmp_path, create=True)
    assert ledger.create_sweep(make_spec()) == "test"
    assert ledger.snapshot("test").state == "interrupted"
    assert ledger.snapshot("test").seconds == 0.0
    recorder = ledger.acquire("test")
    for event in EVENTS[:2]:
        recorder.apply(event)
    recorder.commit(3.0)
    assert recorder.state.use.begun(0) == 2.5
    assert recorder.uncommitted == 0
    for event in EVENTS[2:]:
        recorder.apply(event)
    recorder.commit()
    found = ledger.snapshot("test")
    assert (found.seconds, found.sweep, found.goals) == (3.0, "test", make_spec().goals)
    assert [trial.metrics["loss"] for trial in found.trials] == [0.5]
    assert [len(trial.reports) for trial in found.trials] == [1]
    assert list(ledger.events("test"))[1:] == EVENTS
    recorder.look()
    assert recorder.state.requests == {}
    recorder.apply(Closed("finished"))
    recorder.commit()
    assert ledger.snapshot("test").seconds == 3.0
    ledger.change_spec("test", replace(make_spec(), budget=Budget(trials=99)))
    assert ledger.snapshot("test").budget.trials == 99
    ledger.release("test")
    assert ledger.snapshot("test").state == "finished"
    ledger.close()


def test_a_sweep_in_memory_is_replaced_by_one_of_the_same_name() -> None:
    ledger = MemoryLedger()
    assert ledger.files("a").path == Path(tempfile.gettempdir()) / "automl-memory" / "a"
    with pytest.raises(UsageError, match="name"):
        ledger.create_sweep(replace(make_spec(), name="../x"))
    ledger.create_sweep(make_spec())
    ledger.acquire("test").apply(EVENTS[0])
    assert len(ledger.snapshot("test").trials) == 1
    ledger.create_sweep(make_spec())
    assert ledger.snapshot("test").trials == ()
