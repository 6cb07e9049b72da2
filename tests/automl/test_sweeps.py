"""`automl.sweep` and `sweeps.run`: results, repeatability, continuation, refused arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from objectives import SPACE, make_spec, quick, run_inline, states

import automl
from automl import sweeps
from automl.config import load as load_configuration
from automl.core.events import Ended, Proposed
from automl.core.state import Snapshot
from automl.core.trial import TrialState
from automl.errors import UsageError
from automl.ledger import Ledger
from automl.report.recommendation import recipe
from search_spaces import Float, Space


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
    assert len(second.trials) == 5
    assert second.seconds > first.seconds
    assert ledger.spec("test").budget.trials == 5
    with pytest.raises(UsageError, match="has run before"):
        sweeps.run(make_spec(trials=9), ledger=ledger, objective=quick, dispatcher="inline")


def test_resuming_proposes_what_an_uninterrupted_sweep_does(ledger: Ledger) -> None:
    whole = run_inline(ledger, make_spec("whole", trials=6, suggester="sobol"))
    run_inline(ledger, make_spec("parts", trials=3, suggester="sobol"))
    parts = run_inline(ledger, make_spec("parts", trials=6, suggester="sobol"), resume=True)
    assert [trial.params for trial in parts.trials] == [trial.params for trial in whole.trials]


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
    with pytest.raises(UsageError, match="has the goal 'minimize loss', got 'maximize loss'"):
        automl.sweep(quick, SPACE, "maximize loss", trials=5, name="mine", resume=True, **options)
    with pytest.raises(UsageError, match="has run with another space"):
        automl.sweep(
            quick,
            Space(Float("x", 0, 1)),
            "minimize loss",
            trials=4,
            name="mine",
            resume=True,
            **options,
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


def test_a_rerun_says_what_it_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options: dict[str, Any] = {"suggester": "random", "dispatcher": "inline", "store": tmp_path}
    for _ in range(2):
        automl.sweep(quick, SPACE, "minimize loss", trials=1, **options)
    assert "there is a sweep 'sweep' already: this one is 'sweep-2'" in capsys.readouterr().err
    options |= {"name": "sweep", "resume": True}
    automl.sweep(quick, SPACE, "minimize loss", trials=2, **options)
    assert "going on with the sweep 'sweep', which has trials: 1" in capsys.readouterr().err


def test_the_best_configuration_keeps_the_constraints(ledger: Ledger, tmp_path: Path) -> None:
    spec = make_spec(trials=1, constraints="loss <= 1234567.25")
    best = run_inline(ledger, spec).best
    assert best is not None
    (tmp_path / "best.yaml").write_text(recipe(spec, best))
    again = load_configuration(tmp_path / "best.yaml", objective=True).spec
    assert again.constraints == spec.constraints


def test_all_wrong_arguments_are_told_at_once(tmp_path: Path) -> None:
    wrong: dict[str, Any] = {"seed": None, "max_retries": -1}
    with pytest.raises(UsageError) as caught:
        automl.sweep(quick, SPACE, "minimize loss", trials=1, store=tmp_path / "runs", **wrong)
    said = str(caught.value)
    assert "seed must be a whole number of at least 0, got None (NoneType)" in said
    assert "max_retries must be a whole number of at least 0, got -1" in said
    assert not list(tmp_path.iterdir())
