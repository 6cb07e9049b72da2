"""Objectives that declare their space as they run, in the words of Optuna."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import optuna
import pytest

import automl
from automl.cli.common import load_objective
from automl.core import TrialState
from automl.core.state import fold
from automl.errors import UsageError
from automl.ledger import Ledger
from automl.sweeps import Objective
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
    constraints=["depth <= num_trees"],
)


def swept(objective: Callable[[Any], Any], store: Path, **options: Any) -> automl.Result:
    """A sweep without a space."""
    usual: dict[str, Any] = {"dispatcher": "inline", "suggester": "random", "progress": False}
    goals = options.pop("goals", "minimize value")
    return automl.sweep(objective, goals=goals, store=store, **usual | options)


@pytest.mark.parametrize("dispatcher", ["local", "ray"])
def test_the_space_grows_as_it_is_met(tmp_path: Path, dispatcher: str) -> None:
    result = swept(branches, tmp_path, trials=30, dispatcher=dispatcher, workers=2)
    assert [trial.state for trial in result.trials] == [TrialState.COMPLETED] * 30
    assert result.trials[0].params == {"model": "svm", "cost": 1.0, "kernel": "rbf"}
    assert result.snapshot.spec is not None
    space = result.snapshot.spec.space
    for trial in result.trials:
        space.accept(trial.params, whole=True)
    found = {name: parameter.when for name, parameter in space.parameters.items()}
    assert found == {name: parameter.when for name, parameter in LEARNED.parameters.items()}
    assert [str(one) for one in space.constraints] == ["depth <= num_trees"]


def test_what_a_trial_asks_for_is_in_the_log(tmp_path: Path) -> None:
    swept(branches, tmp_path, trials=6, name="mine")
    ledger = Ledger.open(str(tmp_path))
    asked = [event for event in ledger.events("mine") if isinstance(event, Asked)]
    first = {event.parameter["name"]: event.trial for event in reversed(asked)}
    assert first["model"] == 0
    assert all(event.line.startswith("test_define_by_run.py:") for event in asked)
    folded = ledger.trials("mine")[0]
    for event in asked:  # again, and late: nothing changes
        assert fold(folded, event) is folded
    ledger.close()


def test_words_of_optuna(tmp_path: Path) -> None:

    def objective(trial: Any) -> float:
        x = trial.suggest_float("x", 0.0, 1.0, step=0.05)
        assert trial.params == {"x": x}
        assert trial.suggest_float("x", 0.0, 1.0, step=0.05) == x
        for step in range(4):
            trial.report(x + trial.number, step)
            assert not trial.should_prune()
        return float(x + trial.number)

    result = swept(objective, tmp_path, trials=3)
    assert result.snapshot.spec is not None
    assert result.snapshot.spec.stopper.name == "median"
    assert result.trials[0].params == {"x": 0.5}
    assert [point.metrics for point in result.trials[0].reports] == [{"value": 0.5}] * 4


def test_a_name_with_two_kinds_of_range_names_both_lines(tmp_path: Path) -> None:
    def objective(trial: Any) -> float:
        trial.suggest_float("x", 0, 1)
        return float(trial.suggest_int("x", 0, 1))

    trial = swept(objective, tmp_path, trials=1).trials[0]
    line = objective.__code__.co_firstlineno
    assert trial.state is TrialState.FAILED
    for words in (f"py:{line + 1} has asked for Float('x', 0, 1)", f"py:{line + 2} asks for Int"):
        assert words in trial.message


def test_a_range_that_no_constraint_says_is_searched_by_position(tmp_path: Path) -> None:
    def objective(trial: Any) -> float:
        x = trial.suggest_float("x", 1.0, 2.0)
        return float(trial.suggest_float("y", 0.0, x * x))

    result = swept(objective, tmp_path, trials=12)
    assert all(0 <= t.params["y"] <= t.params["x"] ** 2 for t in result.trials)
    assert result.snapshot.spec is not None
    assert not result.snapshot.spec.space.constraints
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
            for _ in range(6):
                trial: Any = optimizer.ask()
                optimizer.tell(trial, branches(trial))
                assert optimizer.trials[trial.number].params == trial.params
            assert len(optimizer.trials) == 6 * runs + 2 * (runs - 1)
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
    time.sleep(0.1)
    return x

if __name__ == "__main__":
    automl.sweep(objective, trials=24, goals="minimize value", workers=2, dispatcher="local",
                 suggester="random", store="store", name="kills", resume=True)
"""


@pytest.mark.timeout(300)
def test_killed_twice_it_goes_on_with_the_space_that_it_knew(tmp_path: Path) -> None:
    file = tmp_path / "file.py"
    file.write_text(FILE)
    known: list[set[str]] = []
    for wanted in (6, 12, None):
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
    assert len(result.trials) == 24
    assert all(len(t.params) == 2 for t in result.trials if t.state is TrialState.COMPLETED)


def _num_trials(folder: Path) -> int:
    with suppress(automl.AutomlError):
        return len(automl.load("kills", folder / "store").trials)
    return 0


# Objective files as users of Optuna write them run as they are, under both tools.

FOLDER = Path(__file__).parent / "optuna_files"
GOALS: dict[str, str | list[str]] = {
    "closure": "minimize value",
    "dependent_ranges": "minimize value",
    "lightgbm_params": "minimize value",
    "loops": "maximize value",
    "raises_pruned": "minimize value",
    "sgd_pruning": "minimize value",
    "sklearn_branches": "maximize value",
    "torch_layers": "maximize value",
    "two_directions": ["minimize error", "minimize size"],
    "user_attrs": "maximize value",
    "with_study": "minimize value",
    "xgboost_boosters": "minimize value",
}


def objective_of(name: str) -> Objective:
    """The objective of a file, for its packages."""
    for package in ("sklearn", "torch", "xgboost", "lightgbm"):
        if package in (FOLDER / f"{name}.py").read_text():
            pytest.importorskip(package)
    found = load_objective(f"{FOLDER / name}.py:objective")
    assert found is not None
    return found


def test_each_file_is_tried() -> None:
    assert sorted(GOALS) == sorted(path.stem for path in FOLDER.glob("*.py"))


@pytest.mark.parametrize("name", GOALS)
def test_a_file_runs_as_it_is(tmp_path: Path, name: str) -> None:
    objective, goals = objective_of(name), GOALS[name]
    options: dict[str, Any] = {"dispatcher": "inline", "progress": False, "store": tmp_path}
    result = automl.sweep(objective, trials=6, goals=goals, suggester="random", **options)
    failed = [t for t in result.trials if t.state is TrialState.FAILED]
    assert {t.exception for t in failed} <= {"TrialPruned"}, failed
    assert len(result.trials) == 6
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    listed = [goals] if isinstance(goals, str) else goals
    sampler = optuna.samplers.RandomSampler(seed=0)
    study = optuna.create_study(directions=[goal.split()[0] for goal in listed], sampler=sampler)
    study.optimize(objective, n_trials=2)
    ours = {key for trial in result.trials for key in trial.params}
    assert {key for trial in study.trials for key in trial.params} <= ours


# Each line of the first table of docs/start/coming-from.md works as it says.

PAGE = Path(__file__).parents[2] / "docs" / "start" / "coming-from.md"
OPTIONS: dict[str, Any] = {
    "goals": "minimize value",
    "trials": 4,
    "dispatcher": "inline",
    "suggester": "random",
    "progress": False,
}


class TrialPruned(Exception):
    """As Optuna names it."""


def parabola(trial: Any) -> float:
    """A parabola."""
    return float((trial.suggest_float("x", -10, 10) - 2) ** 2)


def tuned(function: Any, store: Path, **options: Any) -> automl.Result:
    return automl.sweep(function, store=store, **{**OPTIONS, **options})


def study(store: Path) -> None:
    result = tuned(parabola, store, trials=5, workers=2, dispatcher="local")
    assert len(result.trials) == 5


def directions(store: Path) -> None:
    goals = ["minimize loss", "maximize accuracy"]
    result = tuned(lambda trial: (parabola(trial), trial.params["x"]), store, goals=goals)
    assert result.trials[0].metrics.items() >= {"loss": 4.0, "accuracy": 0.0}.items()


def suggest(store: Path) -> None:
    def each(trial: Any) -> float:
        rate = trial.suggest_float("rate", 1e-4, 1e-2, log=True)
        count = trial.suggest_int("count", 2, 8, step=2)
        return float(rate * count * len(trial.suggest_categorical("factors", [[1], [4, 6]]).copy()))

    result = tuned(each, store)
    assert result.trials[0].params == {"rate": pytest.approx(1e-3), "count": 6, "factors": (1,)}


def report(store: Path) -> None:
    def steps(trial: Any) -> float:
        trial.suggest_float("x", 0, 1)
        for step in range(3):
            trial.report(float(trial.number), step)
            if trial.should_prune():
                raise TrialPruned
        return float(trial.number)

    result = tuned(steps, store, trials=9)
    last = result.trials[-1]
    assert (last.state, last.message.split(":")[0]) == (TrialState.STOPPED, "median")


def user_attrs(store: Path) -> None:
    def facts(trial: Any) -> float:
        value = parabola(trial)
        trial.set_user_attr("size", 3)
        trial.set_user_attr("number", trial.number)
        trial.set_user_attr("params", trial.params)
        return value

    best = tuned(facts, store, constraints=["size <= 3"]).best
    wanted = {"size": 3, "number": best.number, "params": best.params}
    assert (best.details["user_attrs"], best.metrics["size"]) == (wanted, 3)


def samplers(store: Path) -> None:
    result = tuned(parabola, store, suggester="tpe", stopper="median", seed=0)
    assert {trial.source for trial in result.trials[1:]} <= {"tpe", "random"}
    for options in ({"stopper": "curve"}, {"prior": optuna.create_study()}):
        with pytest.raises(UsageError, match=r"needs (a space that is declared|the space)"):
            tuned(parabola, store, **options)


def best(store: Path) -> None:
    result = tuned(parabola, store)
    assert result.best.value == pytest.approx((result.best.params["x"] - 2) ** 2)
    assert [trial.number for trial in result.pareto] == [result.best.number]


def trials(store: Path) -> None:
    pytest.importorskip("pandas")
    result = tuned(parabola, store)
    assert len(result.to_pandas()) == len(result.trials) == 4


def ask(store: Path) -> None:
    optimizer = automl.Optimizer(goals="minimize value")
    for _ in range(3):
        trial = optimizer.ask()
        optimizer.tell(trial, parabola(trial))
    assert (optimizer.best is not None, len(optimizer.trials)) == (True, 3)


def storage(store: Path) -> None:
    for count in (3, 5):
        result = tuned(parabola, store, trials=count, name="mine", resume=True)
        assert len(result.trials) == count


LINES: dict[str, Callable[[Path], None]] = {
    "`study = create_study()`, `study.optimize(": study,
    "`directions=[": directions,
    "`trial.suggest_float`, `suggest_int`": suggest,
    "`trial.report(loss, step)`": report,
    "`trial.set_user_attr(": user_attrs,
    "`TPESampler(seed=0)`, `MedianPruner()`": samplers,
    "`study.best_value`, `study.best_params`": best,
    "`study.trials`, `study.trials_dataframe()`": trials,
    "`study.ask()`, `study.tell(trial, value)`": ask,
    "`storage=URL`, `study_name=NAME`": storage,
}


def test_each_line_is_tried() -> None:
    table = re.split(r"\n\n", PAGE.read_text().split("| Optuna | here |\n|---|---|\n")[1])[0]
    rows = table.splitlines()
    assert len(rows) == len(LINES) == 10
    assert all(row.startswith(f"| {begins}") for row, begins in zip(rows, LINES, strict=True))


@pytest.mark.parametrize("begins", LINES)
def test_a_line(tmp_path: Path, begins: str) -> None:
    LINES[begins](tmp_path)
