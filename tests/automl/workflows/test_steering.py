"""People steer a sweep: one trial, the budget, the space; with and without a running controller."""

from pathlib import Path
from typing import Any

import pytest
from objectives import commands_of, make_spec, run_inline
from processes import of, running, wait_until

from automl.core import Budget, TrialState
from automl.errors import AutomlError, UsageError
from automl.ledger import Ledger
from automl.workflows import steering


@pytest.mark.parametrize("dispatcher", ["inline", "local"])
def test_one_trial_is_stopped_and_the_sweep_goes_on(tmp_path: Path, dispatcher: str) -> None:
    with running(tmp_path, dispatcher=dispatcher) as (ledger, process):
        with pytest.raises(AutomlError, match=r"trial 0 cannot pause: .* \(resumable: true\)"):
            steering.pause(ledger, "test", 0)
        with pytest.raises(AutomlError, match="only a paused one can be resumed"):
            steering.resume_trial(ledger, "test", 0)
        with pytest.raises(AutomlError, match="only a finished one can be tried again"):
            steering.enqueue(ledger, "test", trial=0)
        with pytest.raises(UsageError, match="there is no trial 7: there are 1"):
            steering.stop(ledger, "test", 7)
        done = steering.stop(ledger, "test", 0, by="ann")
        assert done == "trial 0 stops at its next report"
        wait_until(lambda: of(ledger, 1, TrialState.RUNNING))
        stopped = ledger.trials("test")[0]
        assert (stopped.state, stopped.message) == (TrialState.STOPPED, "stopped by ann")
        assert stopped.metrics["loss"] > 0
        with pytest.raises(AutomlError, match="trial 0 is stopped already"):
            steering.stop(ledger, "test", 0)
        assert process.is_alive()


def test_a_trial_pauses_until_a_person_resumes_it(tmp_path: Path) -> None:
    with running(tmp_path, resumable=True) as (ledger, _):
        assert steering.pause(ledger, "test", 0, by="ann") == ("trial 0 pauses at its next report")
        wait_until(lambda: of(ledger, 1, TrialState.RUNNING))
        paused = ledger.trials("test")[0]
        assert (paused.state, paused.message) == (TrialState.PAUSED, "paused by ann")
        steering.stop(ledger, "test", 1)
        wait_until(lambda: of(ledger, 2, TrialState.RUNNING))
        assert of(ledger, 0, TrialState.PAUSED), "a new trial goes first"
        assert steering.resume_trial(ledger, "test", 0) == "trial 0 goes on next"
        steering.stop(ledger, "test", 2)
        wait_until(lambda: of(ledger, 0, TrialState.RUNNING))
        assert ledger.trials("test")[0].attempts == 2


def test_the_budget_of_a_running_sweep_is_raised(tmp_path: Path) -> None:
    with running(tmp_path, budget=Budget(trials=1, time=3600.0)) as (ledger, process):
        done = steering.change(ledger, "test", {"budget.trials": 2, "budget.time": None})
        assert done == "the budget is now: trials 2"
        assert ledger.spec("test").budget == Budget(trials=2), "a resume knows it too"
        for number in (0, 1):
            wait_until(lambda n=number: of(ledger, n, TrialState.RUNNING))  # type: ignore[misc]
            steering.stop(ledger, "test", number)
        process.join()
        assert process.exitcode == 0
        snapshot = ledger.snapshot("test")
        assert (snapshot.state, len(snapshot.trials)) == ("finished", 2)


def test_a_larger_budget_opens_a_finished_sweep(ledger: Ledger) -> None:
    run_inline(ledger, make_spec(trials=2))
    ledger.release("test")
    assert steering.ask(ledger, "test")["trial"] is None
    steering.change(ledger, "test", {"budget.trials": 4})
    assert ledger.snapshot("test").state == "interrupted"
    assert steering.ask(ledger, "test")["trial"] == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "name what to set"),
        ({"budget.hours": 3}, r"'budget.hours' cannot be set: did you mean 'budget"),
        ({"seed": 3}, "'seed' cannot be set"),
        ({"budget.trials": 0}, "budget.trials must be a whole number of at least 1"),
        ({"budget.time": "soon"}, "a duration is like .*, got 'soon'"),
        ({"budget.trials": 9, "space.lr": 9e9}, "lr must lie in"),
        ({"budget.trials": 9, "space.no": 1}, "the sweep does not tune 'no'"),
        ({"budget.trials": 9, "workers": 0}, "workers must be a whole number of at least 1"),
        ({"space.lr": [0.01, 0.001]}, r"the range of lr is \[LOW, HIGH\]"),
        ({"space.lr": []}, "lr needs a value, a range or choices"),
        ({"space.optimizer": ["sgd", "no"]}, "optimizer"),
    ],
)
def test_a_malformed_change_changes_nothing(
    ledger: Ledger, changes: dict[str, Any], message: str
) -> None:
    ledger.create_sweep(make_spec(trials=2))
    with pytest.raises(UsageError, match=message):
        steering.change(ledger, "test", changes)
    assert ledger.spec("test").budget == Budget(trials=2)
    assert commands_of(ledger, "test") == []


def test_a_sweep_of_agents_stops_without_a_controller(ledger: Ledger) -> None:
    ledger.create_sweep(make_spec())
    steering.ask(ledger, "test")
    assert "1 stop at their agents' next reports" in steering.stop(ledger, "test", by="ann")
    assert ledger.snapshot("test").state == "finished"
    answer = steering.tell(ledger, "test", 0, {"loss": 1.0}, step=1)
    assert (answer["stop"], answer["reason"]) == (True, "it was asked to stop")
    assert steering.tell(ledger, "test", 0, {})["state"] == "stopped"
    assert steering.ask(ledger, "test")["trial"] is None
    assert steering.stop(ledger, "test") == "test is not running, it is finished"
    assert [command.by for command in commands_of(ledger, "test") if command.kind == "stop"] == [
        "ann"
    ]
