"""The end of a sweep: by its time, its target, a stop request or a signal."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from objectives import make_spec, patient, quick, run_inline, states

from automl.control import steering
from automl.control.controller import conduct
from automl.core import Budget, Command, Noted, Trial, text
from automl.dispatch.inline import InlineDispatcher
from automl.ledger import Ledger
from automl.stopping import STOPPERS
from automl.stopping.base import Decision, Stopper
from workers.context import Context


def test_the_time_ends_what_runs_and_it_counts_as_stopped(ledger: Ledger) -> None:
    snapshot = run_inline(ledger, make_spec(budget=Budget(time=0.5)), patient)
    assert (snapshot.state, states(snapshot)) == ("finished", ["stopped"])
    assert snapshot.trials[0].metrics["loss"] > 0
    assert snapshot.best is not None


def test_a_target_ends_a_sweep_at_the_report_that_reaches_it(ledger: Ledger) -> None:
    def objective(trial: Context) -> Any:
        for step in range(100):
            if not trial.report(step=step, bleu=10.0 * trial.number + step):
                break
        return {}

    snapshot = run_inline(
        ledger, make_spec(goals="maximize bleu", budget=Budget(trials=50, target=115.0)), objective
    )
    assert (len(snapshot.trials), states(snapshot)) == (3, ["completed", "completed", "stopped"])
    assert max(point.metrics["bleu"] for point in snapshot.trials[2].reports) == 115.0
    ends = [
        event for event in ledger.events("test") if isinstance(event, Noted) and event.kind == "end"
    ]
    assert "reached the target 115" in ends[0].message


def test_a_target_needs_the_constraints(ledger: Ledger) -> None:
    def objective(trial: Context) -> Any:
        return {"loss": 0.1, "size": float(trial.number)}

    spec = make_spec(budget=Budget(trials=9, target=0.2), constraints="size >= 3")
    assert len(run_inline(ledger, spec, objective).trials) == 4


def test_a_stop_request_ends_a_sweep(ledger: Ledger, tmp_path: Path) -> None:
    other = Ledger.open(tmp_path)

    def objective(trial: Context) -> Any:
        if trial.number == 2:
            other.append("test", Command("stop", {}))
        return patient(trial) if trial.number == 2 else quick(trial)

    snapshot = run_inline(ledger, make_spec(trials=9), objective)
    assert (snapshot.state, states(snapshot)) == ("finished", ["completed", "completed", "stopped"])


class Pausing(Stopper):
    """Pauses everything and never takes it up again."""

    name = "pausing"

    def decide(self, trial: Trial, trials: Sequence[Trial]) -> Decision:
        return Decision("pause", "for ever")


def test_paused_trials_are_stopped_when_the_sweep_ends(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(STOPPERS, "get", lambda name: Pausing)
    snapshot = run_inline(ledger, make_spec(trials=3))
    assert (snapshot.state, states(snapshot)) == ("finished", ["completed", "stopped", "stopped"])
    assert all(trial.ended is not None for trial in snapshot.trials)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_signal_interrupts_a_sweep_that_can_be_resumed(ledger: Ledger) -> None:
    def objective(trial: Context) -> Any:
        if trial.number == 1:
            interrupt()
        return patient(trial) if trial.number == 1 else quick(trial)

    snapshot = run_inline(ledger, make_spec(trials=3), objective)
    assert (snapshot.state, states(snapshot)) == ("interrupted", ["completed", "interrupted"])
    again = run_inline(ledger, make_spec(trials=3), resume=True)
    assert (again.state, states(again)) == ("finished", ["completed"] * 3)
    assert [trial.attempts for trial in again.trials] == [1, 2, 1]


def test_the_second_signal_ends_a_trial_that_does_not_stop(ledger: Ledger) -> None:
    def objective(trial: Context) -> Any:
        interrupt()
        trial.report(step=0, loss=1.0)
        interrupt()
        raise AssertionError("the second signal did not end the trial")

    snapshot = run_inline(ledger, make_spec(trials=3), objective)
    assert (snapshot.state, states(snapshot)) == ("interrupted", ["interrupted"])


def test_a_signal_ends_the_wait_for_workers(ledger: Ledger) -> None:
    def start() -> Any:
        interrupt()
        raise AssertionError("the wait goes on")

    ledger.create_sweep(make_spec(trials=3))
    snapshot = conduct(make_spec(trials=3), ledger, InlineDispatcher, start)
    assert (text.sweep_state(snapshot), states(snapshot)) == ("interrupted", ["waiting"])
    assert run_inline(ledger, make_spec(trials=3), resume=True).state == "finished"


def test_a_sweep_whose_budget_is_raised_while_it_ends_goes_on(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs from then on is not killed once the time to end has passed."""
    monkeypatch.setattr(steering, "GRACE_SECONDS", 0.8)

    def objective(trial: Context) -> Any:
        if trial.number == 0:
            patient(trial)
            ledger.append("test", Command("budget", {"time": None, "trials": 3}))
        time.sleep(0.7)  # the controller serves meanwhile
        return None if trial.report(step=99, loss=1.0) else {}

    snapshot = run_inline(ledger, make_spec(budget=Budget(time=0.2)), objective)
    assert states(snapshot) == ["stopped", "completed", "completed"]
    assert (snapshot.reason, snapshot.trials[2].attempts) == ("its budget is used up", 1)
