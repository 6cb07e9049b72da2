"""With one goal an objective returns its value, and this is what counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import automl
from automl.core import ranking

SPACE = {"x": (0.0, 1.0)}


@pytest.mark.parametrize("dispatcher", ["inline", "local"])
@pytest.mark.parametrize("kind", [float, np.float32, torch.tensor])
def test_an_objective_returns_a_number(dispatcher: str, kind: Any, tmp_path: Path) -> None:
    result = automl.sweep(
        lambda trial: kind(trial.params["x"]),
        SPACE,
        "minimize loss",
        trials=2,
        workers=1,
        dispatcher=dispatcher,
        suggester="sobol",
        store=tmp_path,
    )
    assert result.best.value == pytest.approx(min(trial.params["x"] for trial in result.trials))
    assert result.best.metrics["loss"] == result.best.value


def test_what_the_controller_measures_need_not_be_returned(tmp_path: Path) -> None:
    goals = ["minimize loss", "minimize seconds"]
    options: Any = {"trials": 2, "dispatcher": "inline", "suggester": "sobol", "store": tmp_path}
    result = automl.sweep(lambda trial: trial.params["x"], SPACE, goals, **options)
    assert [trial.metrics["loss"] for trial in result.trials] == [
        trial.params["x"] for trial in result.trials
    ]
    assert all(trial.metrics["seconds"] > 0 for trial in result.trials)


def test_a_replay_yields_numbers_and_returns_one() -> None:
    def replay(params: Any) -> Iterator[tuple[float, float]]:
        for step in range(3):
            yield 1.0, params["x"] + 1 / (step + 1)

    result = automl.simulate(replay, SPACE, "minimize loss", trials=3, suggester="sobol")
    assert result.best.value == pytest.approx(result.best.params["x"] + 1 / 3)
    assert len(result.best.reports) == 3


def peaks(trial: Any, result: Any) -> Any:
    """Reports an accuracy that falls after the second step."""
    for step, accuracy in enumerate((0.5, 0.845, 0.828), start=1):
        trial.report(step, accuracy=accuracy)
    return result


@pytest.mark.parametrize(
    ("goal", "result", "value", "origin"),
    [
        ("maximize accuracy", {"accuracy": 0.82}, 0.82, "returned"),
        ("maximize accuracy", 0.82, 0.82, "returned"),
        ("maximize accuracy", None, 0.845, "best report, at step 2"),
        ("maximize accuracy", {"size": 3}, 0.845, "best report, at step 2"),
        ("maximize accuracy at the end", None, 0.828, "last report"),
        ("maximize accuracy at the end", 0.9, 0.9, "returned"),
        ("minimize seconds", 0.9, None, "measured"),
    ],
)
def test_which_value_counts(
    goal: str, result: Any, value: float | None, origin: str, tmp_path: Path
) -> None:
    if origin == "measured":
        result = {}
    found = automl.sweep(
        lambda trial: peaks(trial, result),
        SPACE,
        goal,
        trials=2,
        dispatcher="inline",
        suggester="sobol",
        store=tmp_path,
    )
    best = found.best
    assert best.value_from == origin
    assert value is None or best.value == value
    assert f"({origin})" in repr(found)
    again = automl.load(found.name, tmp_path).best
    assert (again.value, again.value_from, again.returned) == (best.value, origin, best.returned)


def test_a_trial_that_prunes_itself_is_never_the_best(tmp_path: Path) -> None:
    class TrialPruned(Exception):
        pass

    def objective(trial: Any) -> float:
        if trial.number > 1:
            trial.report(1, loss=0.1)
            raise TrialPruned
        trial.report(1, loss=0.4)
        return 0.5 + trial.number

    options: Any = {"dispatcher": "inline", "suggester": "sobol", "store": tmp_path}
    found = automl.sweep(objective, SPACE, "minimize loss", trials=4, **options)
    assert (found.best.number, found.best.value) == (0, 0.5)
    assert found.recommended.trials == (0,)
    assert [trial.value for trial in found.trials] == [0.5, 1.5, None, None]
    assert ranking.observed(found.trials[3], found.snapshot.goals[0]) == 0.1  # it teaches
    again = automl.load(found.name, tmp_path)
    assert [trial.value for trial in again.trials] == [0.5, 1.5, None, None]

    def pruning(trial: Any) -> None:
        trial.report(1, loss=0.1)
        raise TrialPruned

    none = automl.sweep(pruning, SPACE, "minimize loss", trials=2, **options)
    with pytest.raises(automl.AutomlError, match="2 of 2 trials stopped themselves"):
        none.best  # noqa: B018


def test_what_is_told_counts_as_returned() -> None:
    optimizer = automl.Optimizer(SPACE, "minimize loss", suggester="sobol")
    trial = optimizer.ask()
    optimizer.report(trial, step=1, loss=0.1)
    optimizer.tell(trial, 0.3)
    assert optimizer.best is not None
    assert (optimizer.best.value, optimizer.best.value_from) == (0.3, "returned")


def test_a_returned_value_that_violates_a_constraint_does_not_count() -> None:
    """The report that satisfied it is of a model that was not returned."""
    optimizer = automl.Optimizer(SPACE, "minimize loss", "size <= 5", suggester="sobol")
    trial = optimizer.ask()
    optimizer.report(trial, step=1, loss=0.1, size=1.0)
    optimizer.tell(trial, {"loss": 0.3, "size": 9.0})
    assert optimizer.best is None
