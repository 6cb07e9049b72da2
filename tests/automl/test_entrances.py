"""Each kind of fault that configurations of other tools' users have shown, at more entrances."""

from __future__ import annotations

import math
import multiprocessing
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import automl
from automl import Choice, Float, Int, Space
from automl.config import load
from automl.config.template import read_wandb
from automl.core import Trial
from automl.errors import AutomlError, ConfigError
from automl.ledger import Ledger
from workers.command.arguments import Braces

INFEASIBLE = {
    "a % 7 == 5": (Int("a", 0, 3),),
    "a * b >= 5": (Float("a", 0, 1), Float("b", 0, 4)),
    "a == 'x' and b > 2": (Choice("a", ["x", "y"]), Int("b", 0, 2)),
}


@pytest.mark.parametrize("rule", INFEASIBLE)
def test_a_space_without_a_configuration_is_refused_everywhere(rule: str, tmp_path: Path) -> None:
    space = Space(*INFEASIBLE[rule], constraints=[rule])
    options: Any = {"dispatcher": "inline", "progress": False, "store": str(tmp_path)}
    for begin in (
        lambda: automl.sweep(lambda trial: 1.0, space, "minimize loss", trials=2, **options),
        lambda: automl.Optimizer(space, "minimize loss"),
        lambda: automl.simulate(lambda params: [], space, "minimize loss", seconds=9),
    ):
        with pytest.raises(AutomlError) as caught:
            begin()
        assert rule in str(caught.value)


@pytest.mark.parametrize("metric", ["val loss", "損失", "0/loss", "a b c"])
def test_a_metric_that_may_be_reported_may_be_a_goal(metric: str, tmp_path: Path) -> None:
    with automl.Optimizer(Space(Float("x", 0, 1)), f"minimize {metric}") as optimizer:
        optimizer.tell(optimizer.ask(), {metric: 0.5})
        assert optimizer.best.value == 0.5
    theirs = tmp_path / "theirs.yaml"
    theirs.write_text(f"metric: {{name: {metric!r}}}\nparameters: {{x: {{min: 0.0, max: 1.0}}}}\n")
    (tmp_path / "ours.yaml").write_text(read_wandb(theirs).text("theirs.yaml", "ours.yaml"))
    assert str(load(tmp_path / "ours.yaml", objective=True).spec.goals[0]) == f"minimize {metric}"


@pytest.mark.parametrize("given", ["{value: true}", "{values: [false, 1]}", "{values: [true]}"])
def test_a_program_sees_booleans_as_wandb_spells_them(given: str, tmp_path: Path) -> None:
    path = tmp_path / "theirs.yaml"
    path.write_text(f"program: t.py\nparameters: {{flag: {given}, x: {{values: [1, 2]}}}}\n")
    found = read_wandb(path)
    value = found.space["flag"][0]
    assert Braces({"flag": value}).fill(["--flag={flag}"]) == [f"--flag={value}"]
    assert value in ("True", "False")
    assert "flag: booleans are the texts True and False, as in W&B" in found.notes


@pytest.mark.parametrize("value", [-1e-5, -3.25e-7, -1e-300, -2.5e20])
def test_a_number_below_zero_is_no_option(value: float) -> None:
    (text,) = Braces({"shift": value}).fill(["{shift}"])
    assert float(text) == value
    assert "e" not in text


@pytest.mark.parametrize("wrong", ["[08, 010, 16]", "[08, null, 1]", "{choices: [.5., 09, 07]}"])
def test_what_is_said_of_a_wrong_item_is_said_once(wrong: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(f"goals: minimize loss\nspace:\n  bs: {wrong}\n")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "c.yaml", objective=True)
    lines = [line for line in str(caught.value).splitlines() if "space.bs" in line]
    assert len(lines) == wrong.count(" 0") + wrong.count("[0")
    assert all("leading zero" in line for line in lines)


@pytest.mark.parametrize(
    "listed", [[1e-3, math.inf], [math.nan, 2e-3], [1e-3, -math.inf, "1e-3"], ["None", 1.5, None]]
)
def test_lists_that_a_grid_search_takes(listed: list[Any]) -> None:
    pytest.importorskip("sklearn")
    from sklearn.base import BaseEstimator

    from automl.integrations.sklearn import AutomlSearchCV

    class Seen(BaseEstimator):  # type: ignore[misc]
        def __init__(self, tol: Any = None) -> None:
            self.tol = tol

        def fit(self, data: Any, target: Any = None) -> Seen:
            return self

        def score(self, data: Any, target: Any = None) -> float:
            return float([*map(repr, listed)].index(repr(self.tol)))

    search = AutomlSearchCV(Seen(), {"tol": listed}, n_iter=len(listed), cv=2, random_state=0)
    search.fit([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1])
    assert repr(search.best_params_["tol"]) == repr(listed[-1])


def _in_a_fork(optimizer: automl.Optimizer, trial: Trial, results: Any) -> None:
    for use in (
        optimizer.ask,
        lambda: optimizer.tell(trial, 1.0),
        lambda: optimizer.report(trial, step=1, loss=0.5),
        lambda: optimizer.add({"x": 0.5}, 1.0),
    ):
        try:
            use()
            results.put("no error")
        except AutomlError as error:
            results.put(str(error))


@pytest.mark.parametrize("stored", [True, False])
def test_an_optimizer_that_a_fork_has_copied_is_noticed(stored: bool, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    options: Any = {"store": str(tmp_path), "name": "o"} if stored else {}
    with automl.Optimizer(Space(Float("x", 0, 1)), "minimize loss", **options) as optimizer:
        trial, results = optimizer.ask(), context.SimpleQueue()
        child = context.Process(target=_in_a_fork, args=(optimizer, trial, results))
        child.start()
        said = [results.get() for _ in range(4)]
        child.join(30)
        assert all("fork" in one for one in said), said
        optimizer.tell(trial, 1.0)
        assert len(optimizer.trials) == 1
    if stored:
        with closing(Ledger.open(str(tmp_path), readonly=True)) as ledger:
            assert len(ledger.trials("o")) == 1
