"""`automl.sweep` and `sweeps.run`: results, repeatability, continuation, refused arguments."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from objectives import SPACE, make_spec, quick, run_inline, states

import automl
from automl import sweeps
from automl.core import ranking
from automl.core.events import Ended, Proposed
from automl.core.state import Snapshot
from automl.core.trial import TrialState
from automl.errors import UsageError
from automl.ledger import Ledger
from automl.workflows import steering


def test_a_sweep_runs_to_its_budget_and_is_in_the_ledger(ledger: Ledger) -> None:
    snapshot = run_inline(ledger, make_spec(trials=4))
    assert snapshot.state == "finished"
    assert states(snapshot) == ["completed"] * 4
    assert snapshot.trials[0].params == SPACE.default()
    assert [trial.source for trial in snapshot.trials] == ["default", "random", "random", "random"]
    best = snapshot.best
    assert best is not None
    assert best.metrics["loss"] == min(trial.metrics["loss"] for trial in snapshot.trials)
    kept = ledger.snapshot("test")
    assert kept.state == "finished"
    assert list(kept.trials) == list(snapshot.trials)
    assert all(len(trial.reports) == 3 and trial.attempts == 1 for trial in kept.trials)


@pytest.mark.parametrize("suggester", ["random", "sobol"])
def test_the_same_seed_proposes_the_same(ledger: Ledger, suggester: str) -> None:
    def params(name: str, seed: int) -> list[Any]:
        spec = make_spec(name, suggester=suggester, seed=seed, trials=6)
        return [trial.params for trial in run_inline(ledger, spec).trials]

    assert params("a", 3) == params("b", 3)
    assert params("a-", 3)[1:] != params("c", 4)[1:]


def test_a_sweep_can_be_continued_with_more_trials(ledger: Ledger) -> None:
    first = run_inline(ledger, make_spec(trials=3))
    second = run_inline(ledger, make_spec(trials=5), resume=True)
    assert list(second.trials[:3]) == list(first.trials)
    whole = run_inline(ledger, make_spec("whole", trials=5))
    assert [trial.params for trial in second.trials] == [trial.params for trial in whole.trials]
    assert second.seconds > first.seconds
    assert ledger.spec("test").budget.trials == 5
    with pytest.raises(UsageError, match="has run before"):
        sweeps.run(make_spec(trials=9), ledger=ledger, objective=quick, dispatcher="inline")


def test_an_error_of_whoever_watches_leaves_a_sweep_that_can_be_resumed(ledger: Ledger) -> None:
    def fail(snapshot: Snapshot) -> None:
        if snapshot.in_state(TrialState.RUNNING):
            raise RuntimeError("the terminal is gone")

    with pytest.raises(RuntimeError, match="terminal"):
        run_inline(ledger, make_spec(trials=2), on_change=fail)
    kept = ledger.snapshot("test")
    assert (kept.state, states(kept)) == ("failed", ["interrupted"])
    again = run_inline(ledger, make_spec(trials=2), resume=True)
    assert (again.state, states(again)) == ("finished", ["completed", "completed"])
    assert [trial.attempts for trial in again.trials] == [2, 1]


def test_automl_sweep_returns_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    options: dict[str, Any] = {"suggester": "random", "dispatcher": "inline", "workers": 1}
    result = automl.sweep(quick, SPACE, goals="minimize loss", trials=3, name="mine", **options)
    assert (result.name, result.state, len(result.trials)) == ("mine", "finished", 3)
    assert result.best.value == result.snapshot.best.metrics["loss"]  # type: ignore[union-attr]
    assert result.pareto == [result.best]
    frame = result.to_pandas()
    assert list(frame["number"]) == [0, 1, 2]
    assert frame["value"].min() == result.best.value
    assert not {"metrics.loss", "metrics.seconds", "metrics.peak_memory_bytes"} & {*frame.columns}
    assert frame["params.optimizer"][0] == "adam"
    assert list(frame["source"]) == ["default", "random", "random"]
    assert repr(list(automl.load("mine").trials)) == repr(list(result.trials))
    assert (tmp_path / ".automl" / "ledger.sqlite3").exists()

    with pytest.raises(UsageError, match="there is a sweep named 'mine'"):
        automl.sweep(quick, SPACE, goals="minimize loss", trials=3, name="mine", **options)
    more = automl.sweep(
        quick, SPACE, goals="minimize loss", trials=4, name="mine", resume=True, **options
    )
    assert list(more.trials[:3]) == list(result.trials)
    capsys.readouterr()
    automl.sweep(quick, SPACE, "minimize loss", trials=4, name="mine", resume=True, **options)
    assert (
        "the sweep 'mine' has 4 trials, and its budget is used up. To go on, pass more, such as "
        in (capsys.readouterr().err)
    )
    environment = Ledger.open(".automl").state("mine").environment
    assert environment["packages"]["sqlalchemy"]
    assert environment["hardware"]["num_cpus"] >= 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trials": None}, "needs an end"),
        ({"trials": 0}, "at least 1"),
        ({"budget": "soon"}, "a duration is like"),
        ({"budget": {"hours": 1}}, "unknown key 'hours' of a budget"),
        ({"suggester": "bayse"}, "did you mean 'bayes'"),
        ({"stopper": "nonee"}, "did you mean 'none'"),
        ({"dispatcher": "rey"}, "did you mean 'ray'"),
        ({"goals": "loss"}, "a goal is"),
        ({"goals": []}, "at least one goal"),
        ({"constraints": "loss < 3"}, "a constraint is"),
        ({"workers": 0}, "workers must be a whole number of at least 1"),
        ({"resources": {"cpus": 0}}, "cpus of a slot must be a whole number of at least 1"),
        ({"resources": {"cores": 1}}, "unknown key 'cores' of a slot"),
        ({"name": "../x"}, "a name has 1 to 64"),
        ({"name": "-x"}, "a name has 1 to 64"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments: dict[str, Any] = {"goals": "minimize loss", "trials": 3, "dispatcher": "inline"}
    with pytest.raises(UsageError, match=message):
        automl.sweep(quick, SPACE, **{**arguments, **changes})
    assert not list(tmp_path.iterdir())


def test_inline_proposes_each_trial_with_the_results_of_all_before(ledger: Ledger) -> None:
    run_inline(ledger, make_spec(workers=4, trials=5))
    events = list(ledger.events("test"))
    proposed = [n for n, event in enumerate(events) if isinstance(event, Proposed)]
    ended = [n for n, event in enumerate(events) if isinstance(event, Ended)]
    assert all(end < begin for end, begin in zip(ended, proposed[1:], strict=False))


def test_all_wrong_arguments_are_told_at_once(tmp_path: Path) -> None:
    wrong: dict[str, Any] = {"seed": None, "max_retries": -1}
    with pytest.raises(UsageError) as caught:
        automl.sweep(quick, SPACE, "minimize loss", trials=1, store=tmp_path / "runs", **wrong)
    said = str(caught.value)
    assert "seed must be a whole number of at least 0, got None (NoneType)" in said
    assert "max_retries must be a whole number of at least 0, got -1" in said
    assert not list(tmp_path.iterdir())


# A sweep says why it ended early, why nothing succeeded, and how it has understood a range.


def sweep(
    objective: Any, space: Any, tmp_path: Path, trials: int = 8, **options: Any
) -> automl.Result:
    return automl.sweep(
        objective,
        space,
        "minimize loss",
        trials=trials,
        dispatcher="inline",
        suggester="sobol",
        store=tmp_path,
        **options,
    )


def test_a_space_without_more_configurations(tmp_path: Path, capfd: Any) -> None:
    result = sweep(lambda trial: trial.params["x"], {"x": [0.0, 1.0]}, tmp_path)
    words = "ended after 2 of 8 trials: every configuration of its space was tried"
    assert words in repr(result)
    said = capfd.readouterr().err
    assert words in said


def test_a_pin_that_leaves_one_configuration(tmp_path: Path, capfd: Any) -> None:
    space = {"kind": ["a", "b"], "more": ["c", "d"]}
    sweep(lambda trial: 1.0, space, tmp_path, trials=1, name="s")
    with closing(Ledger.open(str(tmp_path))) as ledger:
        steering.change(ledger, "s", {"space.kind": "a", "space.more": "d"})
    result = sweep(lambda trial: 1.0, space, tmp_path, name="s", resume=True)
    assert "within its limits was tried; the limits are on kind, more" in repr(result)
    assert "the limits are on kind, more" in capfd.readouterr().err


def test_without_a_success_the_cause_is_said(tmp_path: Path, capfd: Any) -> None:
    result = sweep(lambda trial: trial.params["y"], {"x": (0.0, 1.0)}, tmp_path)
    assert str(result).count("KeyError: 'y'") == 1
    assert "3 of 3 trials failed, 3 of them alike" in str(result)
    assert "ended after 3 of 8 trials)" in str(result)
    assert "KeyError: 'y'" in capfd.readouterr().err
    quiet = sweep(lambda trial: trial.params["y"], {"x": (0.0, 1.0)}, tmp_path, progress=False)
    assert len(quiet.trials) == 3
    assert capfd.readouterr().err == ""


def test_a_script_that_ends_before_torch_is_imported_ends_cleanly(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(
        "import automl\n"
        "space = {'x': (0.0, 1.0)}\n"
        "def objective(trial): return 'good'\n"
        "result = automl.sweep(objective, space, 'minimize loss', trials=6, workers=1)\n"
        "print(len(result.trials))\n"
    )
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "3\n"
    assert "Traceback" not in done.stderr, "an import that goes on at the end of the program"


# With one goal an objective returns its value, and this is what counts.

LINE = {"x": (0.0, 1.0)}


def swept(objective: Any, store: Path, goals: Any = "minimize loss", **more: Any) -> automl.Result:
    options = {"trials": 2, "workers": 1, "dispatcher": "inline", "suggester": "sobol", **more}
    return automl.sweep(objective, LINE, goals, store=store, **options)


@pytest.mark.parametrize(
    ("kind", "dispatcher"),
    [(float, "inline"), (np.float32, "inline"), (np.float32, "local"), (torch.tensor, "local")],
)
def test_an_objective_returns_a_number(dispatcher: str, kind: Any, tmp_path: Path) -> None:
    result = swept(lambda trial: kind(trial.params["x"]), tmp_path, dispatcher=dispatcher)
    assert result.best.value == pytest.approx(min(trial.params["x"] for trial in result.trials))
    assert result.best.metrics["loss"] == result.best.value


def test_what_the_controller_measures_need_not_be_returned(tmp_path: Path) -> None:
    goals = ["minimize loss", "minimize seconds"]
    result = swept(lambda trial: trial.params["x"], tmp_path, goals)
    assert [trial.metrics["loss"] for trial in result.trials] == [
        trial.params["x"] for trial in result.trials
    ]
    assert all(trial.metrics["seconds"] > 0 for trial in result.trials)


def test_a_replay_yields_numbers_and_returns_one() -> None:
    def replay(params: Any) -> Iterator[tuple[float, float]]:
        for step in range(3):
            yield 1.0, params["x"] + 1 / (step + 1)

    result = automl.simulate(replay, LINE, "minimize loss", trials=3, suggester="sobol")
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
    found = swept(lambda trial: peaks(trial, result), tmp_path, goal)
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

    found = swept(objective, tmp_path, trials=4)
    assert (found.best.number, found.best.value) == (0, 0.5)
    assert found.recommended.trials == (0,)
    assert [trial.value for trial in found.trials] == [0.5, 1.5, None, None]
    assert ranking.observed(found.trials[3], found.snapshot.goals[0]) == 0.1  # it teaches
    again = automl.load(found.name, tmp_path)
    assert [trial.value for trial in again.trials] == [0.5, 1.5, None, None]

    def pruning(trial: Any) -> None:
        trial.report(1, loss=0.1)
        raise TrialPruned

    none = swept(pruning, tmp_path)
    with pytest.raises(automl.AutomlError, match="2 of 2 trials stopped themselves"):
        none.best  # noqa: B018


@pytest.mark.parametrize(("size", "counts"), [(2.0, True), (9.0, False)])
def test_what_is_told_counts_as_returned_if_it_satisfies_the_constraint(
    size: float, counts: bool
) -> None:
    """The report that satisfied it is of a model that was not returned."""
    optimizer = automl.Optimizer(LINE, "minimize loss", "size <= 5", suggester="sobol")
    trial = optimizer.ask()
    optimizer.report(trial, step=1, loss=0.1, size=1.0)
    optimizer.tell(trial, {"loss": 0.3, "size": size})
    found = optimizer.best
    assert (found and (found.value, found.value_from)) == ((0.3, "returned") if counts else None)


# Ctrl-C in a script that runs a sweep.

SCRIPT = """
import time
import automl

def objective(trial):
    open(f"began{trial.number}", "w").close()
    for step in range(600):
        if not trial.report(step=step, loss=1.0):
            return None
        time.sleep(0.1)

automl.sweep(objective, {"x": (0.0, 1.0)}, "minimize loss", trials=3,
             dispatcher=%r, workers=1, progress=False, store="runs", **%r)
print("the next line")
"""
ROOT = Path(__file__).parents[2]


def interrupted(
    folder: Path, dispatcher: str, signals: int = 1, **options: str
) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(SCRIPT % (dispatcher, options))
    command = [sys.executable, "script.py"]
    paths = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = subprocess.Popen(
        command, cwd=folder, env=paths, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while not (folder / "began0").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    for _ in range(signals):
        running.send_signal(signal.SIGINT)
        time.sleep(0.01)  # later ones may come after the sweep has ended
    out, err = running.communicate(timeout=60)
    return subprocess.CompletedProcess(command, running.returncode, out, err)


@pytest.mark.parametrize(("dispatcher", "signals"), [("local", 4), ("inline", 1)])
def test_the_script_ends_and_says_how_it_goes_on(
    tmp_path: Path, dispatcher: str, signals: int
) -> None:
    """Also while a thread imports torch for `bayes`."""
    done = interrupted(tmp_path, dispatcher, signals)
    # By the signal; 1 if some other thread still ran code at exit: CPython then forgets the signal.
    assert done.returncode in (-signal.SIGINT, 1), done.stderr
    assert "Exception ignored" not in done.stderr
    assert "the next line" not in done.stdout
    last = done.stderr.strip().splitlines()[-1]
    assert "KeyboardInterrupt: the sweep 'sweep' is interrupted and can be resumed" in last
    assert "name='sweep' and resume=True" in last
