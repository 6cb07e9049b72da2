from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

import pytest
from objectives import SPACE

import automl
from automl import Optimizer
from automl.core.trial import TrialState
from automl.errors import AutomlError, StoreError, UsageError
from search_spaces import Choice, Float, Space
from search_spaces.errors import SpaceError


def make(**options: Any) -> Optimizer:
    return Optimizer(SPACE, "minimize loss", **{"suggester": "random", **options})


def test_ask_and_tell() -> None:
    optimizer = make()
    first, second = optimizer.ask(), optimizer.ask()
    assert (first.number, first.params, first.source) == (0, SPACE.default(), "default")
    assert second.params != first.params
    optimizer.report(first, step=1, loss=0.5, seconds=12.0)
    optimizer.report(first, step=2, loss=0.4, seconds=24.0)
    optimizer.tell(first, {"loss": 0.3, "seconds": 40.0, "peak_memory_bytes": 5e9})
    told = optimizer.trials[0]
    assert told.state is TrialState.COMPLETED
    assert told.metrics == {"loss": 0.3, "seconds": 40.0, "peak_memory_bytes": 5e9}
    assert told.peak_memory_bytes == 5_000_000_000
    assert [(point.step, point.seconds) for point in told.reports] == [(1, 12.0), (2, 24.0)]
    assert optimizer.best == told
    assert optimizer.trials[1].state is TrialState.RUNNING


def test_what_was_reported_need_not_be_told_again() -> None:
    optimizer = make()
    trial = optimizer.ask()
    optimizer.report(trial, step=1, loss=0.5)
    assert optimizer.tell(trial).metrics["loss"] == 0.5


def test_a_trial_is_told_once() -> None:
    optimizer = make()
    trial = optimizer.ask()
    optimizer.tell(trial, {"loss": 0.1})
    for again in (
        lambda: optimizer.tell(trial, {"loss": 0.0}),
        lambda: optimizer.fail(trial, "crashed"),
        lambda: optimizer.report(trial, step=9, loss=0.0),
    ):
        with pytest.raises(UsageError, match="trial 0 is completed"):
            again()
    assert optimizer.trials[0].metrics["loss"] == 0.1
    with pytest.raises(UsageError, match="there is no trial 7"):
        optimizer.tell(7, {"loss": 1.0})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_is_a_failure(value: float) -> None:
    optimizer = make()
    trial = optimizer.tell(optimizer.ask(), {"loss": value})
    assert (trial.state, trial.failure) == (TrialState.FAILED, "non_finite")
    assert optimizer.best is None


def test_a_misspelt_metric_is_refused_and_the_trial_can_still_be_told() -> None:
    optimizer = make()
    trial = optimizer.ask()
    with pytest.raises(UsageError, match="no metric 'loss' was reported; these were: lost"):
        optimizer.tell(trial, {"lost": 1.0})
    with pytest.raises(UsageError, match="must be a number"):
        optimizer.tell(trial, {"loss": "low"})  # type: ignore[dict-item]
    assert optimizer.tell(trial, {"loss": 1.0}).state is TrialState.COMPLETED


def test_failures_are_kept() -> None:
    optimizer = make()
    failed = optimizer.fail(optimizer.ask(), "out_of_memory", "9 GB")
    assert (failed.failure, failed.message, failed.attempts) == ("out_of_memory", "9 GB", 1)
    with pytest.raises(UsageError, match="a failure is one of out_of_memory"):
        optimizer.fail(optimizer.ask(), "oom")


def test_trials_from_elsewhere() -> None:
    optimizer = make()
    params = {"lr": 1e-3, "optimizer": "sgd"}
    assert optimizer.add(params, {"loss": 0.4}).source == "added"
    assert optimizer.add(params, failure="timeout").failure == "timeout"
    assert optimizer.best is not None
    assert optimizer.best.number == 0
    assert optimizer.ask().source == "default"
    with pytest.raises(SpaceError):
        optimizer.add({"lr": 9.0, "optimizer": "sgd"}, {"loss": 0.1})
    with pytest.raises(UsageError, match="metrics or a failure"):
        optimizer.add(params)
    with pytest.raises(UsageError, match="no value for the goal"):
        optimizer.add(params, {"x": 1.0})
    assert len(optimizer.trials) == 3


def test_a_space_that_is_used_up_says_so() -> None:
    space = Space(Choice("a", [1, 2]))
    optimizer = Optimizer(space, "minimize loss", suggester="sobol")
    asked = [optimizer.ask(), optimizer.ask()]
    assert {trial.params["a"] for trial in asked} == {1, 2}
    with pytest.raises(AutomlError):
        optimizer.ask()


def test_the_same_calls_give_the_same_trials() -> None:
    def params(seed: int) -> list[Any]:
        optimizer = make(seed=seed)
        trials = [optimizer.ask() for _ in range(4)]
        optimizer.tell(trials[2], {"loss": 0.3})
        return [trial.params for trial in [*trials, optimizer.ask()]]

    assert params(1) == params(1)
    assert params(1)[1:] != params(2)[1:]


def test_constraints_and_several_goals() -> None:
    optimizer = Optimizer(
        Space(Float("x", 0, 1)),
        ["minimize loss", "maximize speed"],
        constraints="size <= 5",
        suggester="random",
    )
    for loss, speed, size in [(1.0, 1.0, 1.0), (0.5, 0.5, 1.0), (2.0, 2.0, 9.0), (1.5, 0.7, 1.0)]:
        optimizer.tell(optimizer.ask(), {"loss": loss, "speed": speed, "size": size})
    assert [trial.number for trial in optimizer.pareto] == [0, 1]
    assert optimizer.best is not None
    assert optimizer.best.number == 1


def test_a_store_is_taken_up_again(tmp_path: Path) -> None:
    store = str(tmp_path)
    with make(store=store) as optimizer:
        optimizer.tell(optimizer.ask(), {"loss": 0.5})
        left = optimizer.ask()
        with pytest.raises(StoreError, match=r"this one: call close\(\) on the earlier Optimizer"):
            make(store=store)
    with make(store=store) as optimizer:
        assert [trial.state for trial in optimizer.trials] == [
            TrialState.COMPLETED,
            TrialState.WAITING,
        ]
        again = optimizer.ask()
        assert (again.number, again.params, again.attempts) == (left.number, left.params, 2)
        optimizer.tell(again, {"loss": 0.4})
    assert automl.load("optimizer", store=store).best is not None
    with pytest.raises(UsageError, match="has run with another space: lr is gone"):
        Optimizer(Space(Float("x", 0, 1)), "minimize loss", store=store)


def test_several_threads_share_one_optimizer() -> None:
    optimizer = make()
    errors: list[Exception] = []

    def work() -> None:
        try:
            for _ in range(10):
                trial = optimizer.ask()
                optimizer.report(trial, step=1, loss=1.0)
                optimizer.tell(trial, {"loss": float(trial.params["lr"])})
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert [trial.number for trial in optimizer.trials] == list(range(40))
    assert {trial.state for trial in optimizer.trials} == {TrialState.COMPLETED}
