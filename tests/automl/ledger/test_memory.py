"""The ledger of simulations answers as the one on disk does."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from objectives import make_spec

from automl.core.budget import Budget
from automl.core.events import Begun, Ended, Noted, Proposed
from automl.core.trial import TrialState
from automl.errors import UsageError
from automl.ledger import Ledger
from automl.ledger.memory import MemoryLedger
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
def test_it_keeps_what_is_committed(kind: str, tmp_path: Path) -> None:
    ledger = MemoryLedger() if kind == "memory" else Ledger.open(tmp_path, create=True)
    assert ledger.create_sweep(make_spec()) == "test"
    assert ledger.snapshot("test").state == "interrupted"
    assert ledger.snapshot("test").seconds == 0.0
    recorder = ledger.acquire("test")
    for event in EVENTS[:2]:
        recorder.apply(event)
    assert recorder.begun(recorder.trials[0]) == 0.0
    assert recorder.commit(3.0, state="running") is False
    assert recorder.begun(recorder.trials[0]) == 2.5
    assert recorder.uncommitted == 0
    ledger.record("test", *EVENTS[2:])
    found = ledger.snapshot("test")
    assert (found.state, found.seconds, found.sweep, found.goals) == (
        "running",
        3.0,
        "test",
        make_spec().goals,
    )
    assert [trial.metrics["loss"] for trial in found.trials] == [0.5]
    assert [len(trial.reports) for trial in ledger.trials("test")] == [1]
    assert list(ledger.events("test")) == [
        event for event in EVENTS if not isinstance(event, Report)
    ]
    assert recorder.wishes(look=True) == ledger.wishes("test") == []
    assert recorder.fulfilled() == set()
    recorder.commit(state="finished")
    assert (ledger.snapshot("test").state, ledger.snapshot("test").seconds) == ("finished", 3.0)
    ledger.replace_spec("test", replace(make_spec(), budget=Budget(trials=99)))
    assert ledger.spec("test").budget.trials == 99
    ledger.close()
    assert not ledger._held


def test_what_is_its_own() -> None:
    ledger = MemoryLedger()
    assert ledger.name == "memory"
    assert ledger.folder("a") == Path(tempfile.gettempdir()) / "automl-memory" / "a"
    with pytest.raises(UsageError, match="name"):
        ledger.create_sweep(replace(make_spec(), name="../x"))
    ledger.create_sweep(make_spec())
    ledger.acquire("test")
    ledger.record("test", EVENTS[0])
    ledger.replace_spec("test", replace(make_spec(), name="other"))
    assert ledger.spec("test").name == "test"
    ledger.create_sweep(make_spec())
    assert ledger.trials("test") == [], "the same name begins anew"
