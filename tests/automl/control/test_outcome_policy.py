"""Which outcomes are failures, and which failures are retried."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from objectives import make_spec, run_inline

import automl
from automl.dispatch.inline import InlineDispatcher
from automl.ledger import Ledger
from workers.context import Context


def test_each_failure_is_what_it_is_and_is_not_tried_again(ledger: Ledger) -> None:
    def objective(trial: Context) -> Any:
        if trial.number == 1:
            raise automl.TrialFailure("out_of_memory", "too large")
        if trial.number == 2:
            return {"loss": math.nan}
        if trial.number == 3:
            trial.report(step=1, accuracy=0.5)
            return {"lost": 1.0}
        if trial.number == 4:
            raise ValueError("a bug")
        if trial.number == 5:
            return {"loss": "low"}
        if trial.number == 6:
            raise MemoryError
        trial.report(step=1, loss=-math.inf)  # only what is final decides
        return {"loss": 1.0}

    snapshot = run_inline(ledger, make_spec(trials=8), objective)
    kinds = [trial.failure for trial in snapshot.trials]
    expected = [
        "out_of_memory",
        "non_finite",
        "missing_metric",
        "crashed",
        "missing_metric",
        "out_of_memory",
    ]
    assert kinds == [None, *expected, None]
    assert all(trial.attempts == 1 for trial in snapshot.trials)
    assert "'loss'" in snapshot.trials[3].message
    assert "accuracy" in snapshot.trials[3].message
    assert "lost" in snapshot.trials[3].message
    assert "ValueError: a bug" in snapshot.trials[4].message
    assert snapshot.best is not None
    assert snapshot.best.number == 0


def test_events_that_arrive_twice_or_late_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every event of a worker comes once more at once, and again with each later one."""

    def objective(trial: Context) -> Any:
        trial.report(step=1, loss=float(trial.assignment.attempt))
        if (trial.number, trial.assignment.attempt) == (1, 1):
            raise automl.TrialFailure("preempted", "its machine is taken away")
        return {"loss": trial.params["lr"]}

    poll, earlier, logs = InlineDispatcher.poll, list[Any](), []

    def repeated(self: InlineDispatcher, handle: Any, timeout: float) -> None:
        def handle_again(event: Any) -> None:
            earlier.append(event)
            for one in (event, *earlier):
                handle(one)

        poll(self, handle_again, timeout)

    for name in ("once", "again and again"):
        ledger = Ledger.open(tmp_path / name, create=True)
        trials = run_inline(ledger, make_spec(trials=4), objective).trials
        kinds = [(type(event).__name__, event.trial) for event in ledger.events("test")]
        facts = [(t.state, t.attempts, t.metrics["loss"], len(t.reports)) for t in trials]
        logs.append((kinds, facts))
        monkeypatch.setattr(InlineDispatcher, "poll", repeated)
    assert trials[1].attempts == 2
    assert logs[0] == logs[1]
