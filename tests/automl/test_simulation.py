from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

import automl
from automl.core.trial import TrialState
from automl.sweeps import Simulation
from search_spaces import Float, Space

SPACE = Space(Float("x", 0.0, 1.0))


def replay(params: Any) -> Iterator[tuple[float, dict[str, float]]]:
    for step in range(1, 11):
        yield 1.0 + params["x"], {"loss": params["x"] + 1.0 / step}


def simulate(function: Any = replay, **options: Any) -> Simulation:
    defaults: dict[str, Any] = {"workers": 4, "seconds": 100.0, "suggester": "random", "seed": 1}
    return automl.simulate(function, SPACE, "minimize loss", **{**defaults, **options})


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


def test_the_trajectory_is_the_running_best_of_all_reports() -> None:
    result = simulate()
    times, values = zip(*result.trajectory, strict=True)
    assert list(times) == sorted(times)
    assert list(values) == sorted(values, reverse=True)
    every = [p.metrics["loss"] for trial in result.trials for p in trial.reports]
    assert values[-1] == min(every)
    assert len(set(values)) == len(values)
    assert times[0] > 0


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
    enqueued = simulate(steady, seconds=None, budget={"time": 95.0}, workers=4)
    assert {trial.state for trial in enqueued.trials} == {TrialState.COMPLETED}
