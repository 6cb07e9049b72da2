"""Which outcomes are failures, and which failures are retried."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from objectives import make_spec, quick, run_inline

import automl
from automl.control.controller import conduct
from automl.dispatch.inline import InlineDispatcher
from automl.ledger import Ledger
from workers.context import Context
from workers.protocol import Assignment, Ending, Event, Outcome, Started, lost


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


class Losing(InlineDispatcher):
    """Loses the worker of trial 1 in its first `losses` attempts, with or without notice."""

    def __init__(self, losses: int, *, notice: bool = False) -> None:
        super().__init__(1, quick)
        self.losses = losses
        self.notice = notice
        self.lost: list[Assignment] = []

    def submit(self, assignment: Assignment) -> None:
        if assignment.trial == 1 and assignment.attempt <= self.losses:
            self.lost.append(assignment)
        else:
            super().submit(assignment)

    def poll(self, handle: Callable[[Event], None], timeout: float) -> None:
        for assignment in self.lost:
            handle(Started(assignment.trial, assignment.attempt))
            if self.notice:
                trial, attempt = assignment.trial, assignment.attempt
                handle(Outcome(trial, attempt, Ending.INTERRUPTED, message="the node goes away"))
            else:
                handle(lost(assignment, "the worker died", seconds=1.0))
        self.lost.clear()
        super().poll(handle, timeout)


@pytest.mark.parametrize(
    ("losses", "state", "attempts"), [(1, "completed", 2), (2, "completed", 3), (9, "failed", 3)]
)
def test_a_lost_worker_is_replaced_so_many_times(
    ledger: Ledger, losses: int, state: str, attempts: int
) -> None:
    spec = make_spec(trials=3, max_retries=2)
    ledger.create_sweep(spec)

    snapshot = conduct(spec, ledger, Losing, lambda: Losing(losses))
    trial = snapshot.trials[1]
    assert (str(trial.state), trial.attempts) == (state, attempts)
    assert trial.failure == ("crashed" if state == "failed" else None)
    assert trial.seconds >= min(losses, attempts) * 1.0
    if state == "completed":  # what was lost is no part of the run that gave the result
        assert trial.metrics["seconds"] < 1.0
    assert len(snapshot.trials) == 3


def test_a_machine_that_is_taken_away_with_notice_costs_no_retry(ledger: Ledger) -> None:
    spec = make_spec(trials=3, max_retries=1)
    ledger.create_sweep(spec)
    snapshot = conduct(spec, ledger, Losing, lambda: Losing(5, notice=True))
    trial = snapshot.trials[1]
    assert (str(trial.state), trial.attempts) == ("completed", 6)
    assert trial.retries == 0
