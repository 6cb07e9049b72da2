"""Each line of the first table of docs/start/coming-from.md works as it says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import automl
from automl.core import TrialState
from automl.errors import UsageError

PAGE = Path(__file__).parents[2] / "docs" / "start" / "coming-from.md"
OPTIONS: dict[str, Any] = {"dispatcher": "inline", "suggester": "random", "progress": False}
LINES: dict[str, Callable[[Path], None]] = {}


class TrialPruned(Exception):
    """As Optuna names it."""


def line(begins: str) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    """The test of the line that begins so."""

    def add(test: Callable[[Path], None]) -> Callable[[Path], None]:
        LINES[begins] = test
        return test

    return add


def objective(trial: Any) -> float:
    """A parabola."""
    return float((trial.suggest_float("x", -10, 10) - 2) ** 2)


@line("`study = create_study()`, `study.optimize(")
def study(store: Path) -> None:
    result = automl.sweep(
        objective,
        trials=5,
        goals="minimize value",
        workers=2,
        store=store,
        dispatcher="local",
        progress=False,
    )
    assert len(result.trials) == 5


@line("`directions=[")
def directions(store: Path) -> None:
    goals = ["minimize loss", "maximize accuracy"]
    result = automl.sweep(
        lambda trial: (objective(trial), trial.params["x"]),
        trials=5,
        goals=goals,
        store=store,
        **OPTIONS,
    )
    assert result.trials[0].metrics.items() >= {"loss": 4.0, "accuracy": 0.0}.items()


@line("`trial.suggest_float`, `suggest_int`")
def suggest(store: Path) -> None:
    def each(trial: Any) -> float:
        rate = trial.suggest_float("rate", 1e-4, 1e-2, log=True)
        count = trial.suggest_int("count", 2, 8, step=2)
        return float(rate * count * trial.suggest_categorical("factor", [1, 10]))

    result = automl.sweep(each, trials=4, goals="minimize value", store=store, **OPTIONS)
    assert result.trials[0].params == {"rate": pytest.approx(1e-3), "count": 6, "factor": 1}


@line("`trial.report(loss, step)`")
def report(store: Path) -> None:
    def steps(trial: Any) -> float:
        trial.suggest_float("x", 0, 1)
        for step in range(3):
            trial.report(float(trial.number), step)
            if trial.should_prune():
                raise TrialPruned
        return float(trial.number)

    result = automl.sweep(steps, trials=9, goals="minimize value", store=store, **OPTIONS)
    assert result.trials[-1].state is TrialState.STOPPED


@line("`trial.set_user_attr(")
def user_attrs(store: Path) -> None:
    def facts(trial: Any) -> float:
        value = objective(trial)
        trial.set_user_attr("size", 3)
        trial.set_user_attr("number", trial.number)
        trial.set_user_attr("params", trial.params)
        return value

    best = automl.sweep(facts, trials=4, goals="minimize value", store=store, **OPTIONS).best
    wanted = {"size": 3, "number": best.number, "params": best.params}
    assert best.details["user_attrs"] == wanted


@line("`TPESampler(seed=0)`, `MedianPruner()`")
def samplers(store: Path) -> None:
    options = {**OPTIONS, "suggester": "tpe", "stopper": "median", "seed": 0}
    result = automl.sweep(objective, trials=4, goals="minimize value", store=store, **options)
    assert {trial.source for trial in result.trials[1:]} <= {"tpe", "random"}
    with pytest.raises(UsageError, match="'curve' needs a space that is declared"):
        automl.sweep(objective, trials=4, goals="minimize value", stopper="curve", store=store)


@line("`study.best_value`, `study.best_params`")
def best(store: Path) -> None:
    result = automl.sweep(objective, trials=4, goals="minimize value", store=store, **OPTIONS)
    assert result.best.value == pytest.approx((result.best.params["x"] - 2) ** 2)
    assert [trial.number for trial in result.pareto] == [result.best.number]


@line("`study.trials`, `study.trials_dataframe()`")
def trials(store: Path) -> None:
    pytest.importorskip("pandas")
    result = automl.sweep(objective, trials=4, goals="minimize value", store=store, **OPTIONS)
    assert len(result.to_pandas()) == len(result.trials) == 4


@line("`study.ask()`, `study.tell(trial, value)`")
def ask(store: Path) -> None:
    optimizer = automl.Optimizer(goals="minimize value")
    for _ in range(3):
        trial = optimizer.ask()
        optimizer.tell(trial, objective(trial))
    assert optimizer.best is not None
    assert len(optimizer.trials) == 3


@line("`storage=URL`, `study_name=NAME`")
def storage(store: Path) -> None:
    for count in (3, 5):
        result = automl.sweep(
            objective,
            trials=count,
            goals="minimize value",
            store=store,
            name="mine",
            resume=True,
            **OPTIONS,
        )
        assert len(result.trials) == count


def test_each_line_is_tried() -> None:
    table = re.split(r"\n\n", PAGE.read_text().split("| Optuna | here |\n|---|---|\n")[1])[0]
    rows = table.splitlines()
    assert len(rows) == len(LINES) == 10
    assert all(row.startswith(f"| {begins}") for row, begins in zip(rows, LINES, strict=True))


@pytest.mark.parametrize("begins", LINES)
def test_a_line(tmp_path: Path, begins: str) -> None:
    LINES[begins](tmp_path)
