from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from objectives import SPACE

import automl
from automl import Optimizer
from automl.core.trial import TrialState
from automl.errors import StoreError, UsageError
from automl.sweeps import Simulation
from search_spaces import Float, Space
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


def test_failures_and_trials_from_elsewhere_are_kept() -> None:
    optimizer = make()
    with pytest.raises(UsageError, match="a failure's kind is one of out_of_memory"):
        optimizer.add({}, failure="oom")
    params = {"lr": 1e-3, "optimizer": "sgd"}
    added = optimizer.add(params, {"loss": 0.4}), optimizer.add(params, failure="timeout")
    assert [(one.source, one.failure) for one in added] == [("added", None), ("added", "timeout")]
    assert getattr(optimizer.best, "number", None) == 0
    failed = optimizer.fail(optimizer.ask(), "out_of_memory", "9 GB")
    assert [getattr(failed, of) for of in ("source", "failure", "message", "attempts")] == [
        "default",
        "out_of_memory",
        "9 GB",
        1,
    ]
    with pytest.raises(SpaceError):
        optimizer.add({"lr": 9.0, "optimizer": "sgd"}, {"loss": 0.1})
    for metrics, words in ((None, "metrics or a failure"), ({"x": 1.0}, "no value for the goal")):
        with pytest.raises(UsageError, match=words):
            optimizer.add(params, metrics)
    assert len(optimizer.trials) == 3


def test_the_same_calls_give_the_same_trials() -> None:
    def params(seed: int) -> list[Any]:
        optimizer = make(seed=seed)
        trials = [optimizer.ask() for _ in range(4)]
        optimizer.tell(trials[2], {"loss": 0.3})
        return [trial.params for trial in [*trials, optimizer.ask()]]

    assert params(1) == params(1)
    assert params(1)[1:] != params(2)[1:]


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

    def work(_: int) -> None:
        for _ in range(10):
            trial = optimizer.ask()
            optimizer.report(trial, step=1, loss=1.0)
            optimizer.tell(trial, {"loss": float(trial.params["lr"])})

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert [trial.number for trial in optimizer.trials] == list(range(40))
    assert {trial.state for trial in optimizer.trials} == {TrialState.COMPLETED}


# The same controller on a virtual clock.

LINE = Space(Float("x", 0.0, 1.0))


def replay(params: Any) -> Iterator[tuple[float, dict[str, float]]]:
    for step in range(1, 11):
        yield 1.0 + params["x"], {"loss": params["x"] + 1.0 / step}


def simulate(function: Any = replay, **options: Any) -> Simulation:
    defaults: dict[str, Any] = {"workers": 4, "seconds": 100.0, "suggester": "random", "seed": 1}
    return automl.simulate(function, LINE, "minimize loss", **{**defaults, **options})


def test_trials_carry_their_curve_and_their_virtual_times() -> None:
    result = simulate(trials=6, seconds=None)
    assert result.state == "finished"
    assert [str(trial.state) for trial in result.trials] == ["completed"] * 6
    for trial in result.trials:
        x = float(trial.params["x"])
        assert [point.step for point in trial.reports] == list(range(1, 11))
        assert trial.metrics["loss"] == x + 0.1
        assert trial.started is not None
        assert trial.ended == pytest.approx(trial.started + 10 * (1.0 + x))
        assert trial.reports[-1].seconds == pytest.approx(10 * (1.0 + x))
    assert [trial.started for trial in result.trials[:4]] == [0.0] * 4
    freed = sorted(trial.ended or 0.0 for trial in result.trials[:4])
    assert [trial.started for trial in result.trials[4:]] == freed[:2]
    times, values = zip(*result.trajectory, strict=True)
    assert (list(times), list(values)) == (sorted(times), sorted({*values}, reverse=True))
    assert values[-1] == min(p.metrics["loss"] for t in result.trials for p in t.reports)


def test_the_time_ends_a_simulation_and_what_runs_is_stopped() -> None:
    result = simulate(seconds=25.0)
    assert result.snapshot.seconds == pytest.approx(25.0, abs=0.01)
    assert {trial.state for trial in result.trials} <= {TrialState.COMPLETED, TrialState.STOPPED}
    assert max(trial.ended or 0.0 for trial in result.trials) == pytest.approx(25.0, abs=0.01)
    worker_time = simulate(seconds=None, budget={"worker_time": 60.0})
    assert worker_time.snapshot.seconds == pytest.approx(15.0, abs=0.01)


@pytest.mark.parametrize("faults", [{}, {"mean_lifetime": 15.0}])
def test_the_same_seed_gives_the_same_simulation(faults: Any) -> None:
    first, second = simulate(**faults), simulate(**faults)
    assert list(first.trials) == list(second.trials)
    assert first.trajectory == second.trajectory
    assert [t.params for t in first.trials] != [t.params for t in simulate(**faults, seed=2).trials]


def test_a_trial_that_fails_fails_as_it_says() -> None:
    def failing(params: Any) -> Iterator[tuple[float, dict[str, float]]]:
        yield 1.0, {"loss": 1.0}
        if params["x"] > 0.6:
            raise automl.TrialFailure("out_of_memory", "too large")
        if params["x"] > 0.3:
            raise ValueError("a mistake")
        yield 1.0, {"loss": math.nan}

    result = simulate(failing, trials=20, seconds=None)
    kinds = {trial.failure for trial in result.trials}
    assert kinds == {"out_of_memory", "crashed", "non_finite"}
    with pytest.raises(automl.AutomlError, match="No trial has succeeded"):
        result.best  # noqa: B018


def test_a_lost_worker_costs_time_but_no_report() -> None:
    calls = []

    def counted(params: Any) -> Iterator[tuple[float, dict[str, float]]]:
        calls.append(params["x"])
        yield from replay(params)

    result = simulate(counted, trials=12, seconds=None, mean_lifetime=12.0, max_retries=50)
    assert max(trial.attempts for trial in result.trials) > 1
    assert len(calls) == 12
    for trial in result.trials:
        assert trial.state is TrialState.COMPLETED
        assert [point.step for point in trial.reports] == list(range(1, 11))
    assert result.snapshot.seconds > simulate(trials=12, seconds=None).snapshot.seconds


@pytest.mark.parametrize(
    ("budget", "number"), [({"time": 95.0}, 9), ({"worker_time": 95.0}, 9), ({"time": 100.5}, 10)]
)
def test_a_sweep_ends_when_no_trial_could_end_in_time(budget: Any, number: int) -> None:
    def steady(params: Any) -> Iterator[tuple[float, dict[str, float]]]:
        for _ in range(10):
            yield 1.0, {"loss": params["x"]}

    result = simulate(steady, seconds=None, budget=budget, workers=1)
    assert [trial.state for trial in result.trials] == [TrialState.COMPLETED] * number
    assert result.state == "finished"
    assert result.decisions[-1].kind == "end"
    assert "the shortest trial so far took 10 s" in result.decisions[-1].message
