"""Objectives that declare their space as they run, in the words of Optuna."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import automl
from automl.core import TrialState
from automl.core.events import fold
from automl.errors import UsageError
from automl.ledger import Ledger
from search_spaces import Choice, Float, Int, Space
from search_spaces.change import Asks, learned
from workers.protocol import Asked


def branches(trial: Any) -> float:
    """Two branches, a branch below one, and a bound that depends on a value."""
    if trial.suggest_categorical("model", ["svm", "forest"]) == "svm":
        cost = trial.suggest_float("cost", 1e-3, 1e3, log=True)
        degree = 3
        if trial.suggest_categorical("kernel", ["rbf", "poly"]) == "poly":
            degree = trial.suggest_int("degree", 2, 5)
        return float(abs(cost - 1) / 100 + degree)
    num_trees = trial.suggest_int("num_trees", 10, 200)
    depth = trial.suggest_int("depth", 1, num_trees)
    return float(num_trees - depth)


LEARNED = Space(
    Choice("model", ["svm", "forest"]),
    Int("num_trees", 10, 200, when={"model": "forest"}),
    Int("depth", 1, 200, when={"model": "forest"}),
    Float("cost", 1e-3, 1e3, log=True, when={"model": "svm"}),
    Choice("kernel", ["rbf", "poly"], when={"model": "svm"}),
    Int("degree", 2, 5, when={"kernel": "poly"}),
)


def swept(objective: Callable[[Any], Any], store: Path, **options: Any) -> automl.Result:
    """A sweep without a space."""
    usual: dict[str, Any] = {"dispatcher": "inline", "suggester": "random", "progress": False}
    goals = options.pop("goals", "minimize value")
    return automl.sweep(objective, goals=goals, store=store, **usual | options)


@pytest.mark.parametrize("dispatcher", ["inline", "local", "ray"])
def test_the_space_grows_as_it_is_met(tmp_path: Path, dispatcher: str) -> None:
    workers = None if dispatcher == "inline" else 2
    result = swept(branches, tmp_path, trials=30, dispatcher=dispatcher, workers=workers)
    assert [trial.state for trial in result.trials] == [TrialState.COMPLETED] * 30
    assert result.trials[0].params == {"model": "svm", "cost": 1.0, "kernel": "rbf"}
    assert result.snapshot.spec is not None
    space = result.snapshot.spec.space
    for trial in result.trials:
        space.accept(trial.params, whole=True)
    found = {name: parameter.when for name, parameter in space.parameters.items()}
    assert found == {name: parameter.when for name, parameter in LEARNED.parameters.items()}


def test_what_a_trial_asks_for_is_in_the_log(tmp_path: Path) -> None:
    swept(branches, tmp_path, trials=6, name="mine")
    ledger = Ledger.open(str(tmp_path))
    events = list(ledger.events("mine"))
    asked = [event for event in events if isinstance(event, Asked)]
    first = {event.parameter["name"]: event.trial for event in reversed(asked)}
    assert first["model"] == 0
    assert all(event.line.startswith("test_define_by_run.py:") for event in asked)
    folded = ledger.trials("mine")[0]
    for event in asked:  # again, and late: nothing changes
        assert fold(folded, event) is folded
    ledger.close()


def test_words_of_optuna(tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")

    def objective(trial: Any) -> float:
        x = trial.suggest_float("x", 0.0, 1.0, step=0.05)
        trial.set_user_attr("twice", 2 * x)
        assert trial.user_attrs == {"twice": 2 * x}
        assert trial.params == {"x": x}
        assert trial.suggest_float("x", 0.0, 1.0, step=0.05) == x
        for step in range(4):
            trial.report(x + trial.number, step)
            if trial.number > 5 and trial.should_prune():
                raise optuna.TrialPruned
        return float(x + trial.number)

    result = swept(objective, tmp_path, trials=8)
    assert result.snapshot.spec is not None
    assert result.snapshot.spec.stopper == "median"
    assert result.trials[0].params == {"x": 0.5}
    assert result.best.details["user_attrs"] == {"twice": 2 * result.best.params["x"]}
    assert result.trials[-1].state is TrialState.STOPPED
    assert [point.metrics for point in result.trials[0].reports] == [{"value": 0.5}] * 4


def test_several_goals_are_returned_in_their_order(tmp_path: Path) -> None:
    def objective(trial: Any) -> tuple[float, float]:
        x = trial.suggest_float("x", 0, 1)
        return x, 1 - x

    result = swept(objective, tmp_path, trials=5, goals=["minimize loss", "minimize size"])
    assert len(result.pareto) == 5
    assert all(t.metrics["loss"] == t.params["x"] for t in result.trials)
    with pytest.raises(Exception, match="the objective returned"):
        swept(lambda trial: (1.0, 2.0), tmp_path, trials=1).best  # noqa: B018


def test_a_name_with_two_kinds_of_range_names_both_lines(tmp_path: Path) -> None:
    def objective(trial: Any) -> float:
        trial.suggest_float("x", 0, 1)
        return float(trial.suggest_int("x", 0, 1))

    trial = swept(objective, tmp_path, trials=1).trials[0]
    line = objective.__code__.co_firstlineno
    assert trial.state is TrialState.FAILED
    for words in (f"py:{line + 1} has asked for Float('x', 0, 1)", f"py:{line + 2} asks for Int"):
        assert words in trial.message


def test_a_range_that_depends_on_a_value_is_searched_by_position(tmp_path: Path) -> None:
    def objective(trial: Any) -> float:
        x = trial.suggest_float("x", 1.0, 2.0)
        return float(trial.suggest_float("y", 0.0, x * x))

    result = swept(objective, tmp_path, trials=12)
    assert all(0 <= t.params["y"] <= t.params["x"] ** 2 for t in result.trials)
    assert result.snapshot.spec is not None
    ledger = Ledger.open(str(tmp_path))
    notes = [getattr(event, "message", "") for event in ledger.events("sweep")]
    ledger.close()
    assert sum(note.startswith("y: its range depends on other values") for note in notes) == 1


def test_layers_of_a_loop_are_conditional() -> None:
    def asks(layers: int) -> Asks:
        names = [f"width_{i}" for i in range(layers)]
        asked = {"layers": Int("layers", 1, 4).to_dict()}
        asked |= {name: Int(name, 8, 64).to_dict() for name in names}
        return Asks({"layers": layers, **dict.fromkeys(names, 8)}, asked, True)

    space, moved = learned(map(asks, (1, 3, 2)))
    assert not moved
    assert dict(space.parameters["width_0"].when) == {}
    assert space.parameters["width_1"].when == {"layers": (2, 3, 4)}
    assert space.parameters["width_2"].when == {"layers": (3, 4)}


def test_a_condition_on_two_parameters_is_learned() -> None:
    both = [Choice(name, ["no", "yes"]).to_dict() for name in ("a", "b")]

    def asks(a: str, b: str) -> Asks:
        params, asked = {"a": a, "b": b}, dict(zip("ab", both, strict=True))
        if a == b == "yes":
            params["c"], asked["c"] = "no", Choice("c", ["no", "yes"]).to_dict()
        return Asks(params, asked, True)

    trials = [asks(a, b) for a in ("no", "yes") for b in ("no", "yes")]
    space, _ = learned(trials)
    assert space.parameters["c"].when == {"a": ("yes",), "b": ("yes",)}
    space, _ = learned([*trials, Asks({"c": "no"}, {"c": both[0] | {"name": "c"}}, False)])
    assert not space.parameters["c"].when  # no condition says it


def test_an_optimizer_asks(tmp_path: Path) -> None:
    options: dict[str, Any] = {"store": tmp_path, "suggester": "random"}
    for runs in (1, 2):  # the second goes on with the space that it knew
        with automl.Optimizer(goals="minimize loss", **options) as optimizer:
            for _ in range(10):
                trial: Any = optimizer.ask()
                optimizer.tell(trial, branches(trial))
                assert optimizer.trials[trial.number].params == trial.params
            assert len(optimizer.trials) == 10 * runs + 2 * (runs - 1)
            known = optimizer.ask()
            with pytest.raises(UsageError, match="give one of them another name"):
                known.suggest_float("model", 0, 1)  # type: ignore[attr-defined]
            optimizer.add({"model": "svm", "cost": 1.0, "kernel": "rbf"}, 3.0)
            optimizer.fail(known, "crashed")
            options["name"] = "optimizer"


def test_a_declared_space_answers_suggest(tmp_path: Path) -> None:
    def objective(trial: Any) -> float:
        return float(trial.suggest_float("x", 0, 1) + trial.suggest_int("n", 0, 9))

    space = {"x": (0.2, 0.3), "n": [3, 4]}
    result = automl.sweep(
        objective, space, "minimize value", trials=3, dispatcher="inline", store=tmp_path
    )
    assert all(t.metrics["value"] == t.params["x"] + t.params["n"] for t in result.trials)
    lacking = automl.sweep(
        objective, {"x": (0, 1)}, "minimize value", trials=1, dispatcher="inline", store=tmp_path
    )
    assert "the space of this sweep was declared, and 'n' is not" in lacking.trials[0].message


def test_an_objective_that_asks_for_nothing_ends(tmp_path: Path) -> None:
    result = swept(lambda trial: 1.0, tmp_path, trials=9)
    assert len(result.trials) == 1
    assert "asks for no parameter (trial.suggest_float)" in result.snapshot.reason


FILE = """
import time
import automl

def objective(trial):
    model = trial.suggest_categorical("model", ["a", "b"])
    x = trial.suggest_float("x_" + model, 0.0, 1.0)
    time.sleep(0.15)
    return x

if __name__ == "__main__":
    automl.sweep(objective, trials=40, goals="minimize value", workers=2, dispatcher="local",
                 suggester="random", store="store", name="kills", resume=True)
"""


@pytest.mark.timeout(300)
def test_killed_twice_it_goes_on_with_the_space_that_it_knew(tmp_path: Path) -> None:
    file = tmp_path / "file.py"
    file.write_text(FILE)
    known: list[set[str]] = []
    for wanted in (10, 20, None):
        process = subprocess.Popen([sys.executable, str(file)], cwd=tmp_path)
        if wanted is None:
            assert process.wait(timeout=200) == 0
            break
        while _num_trials(tmp_path) < wanted:
            assert process.poll() is None
            time.sleep(0.1)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        known.append(set(automl.load("kills", tmp_path / "store").snapshot.spec.space.parameters))  # type: ignore[union-attr]
    result = automl.load("kills", tmp_path / "store")
    assert result.snapshot.spec is not None
    assert known == [{"model", "x_a", "x_b"}] * 2
    assert set(result.snapshot.spec.space.parameters) == known[0]
    assert len(result.trials) == 40
    assert all(len(t.params) == 2 for t in result.trials if t.state is TrialState.COMPLETED)


def _num_trials(folder: Path) -> int:
    try:
        return len(automl.load("kills", folder / "store").trials)
    except automl.AutomlError:
        return 0
