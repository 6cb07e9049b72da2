"""`automl.sweep(prior=, enqueue=)`: what a sweep begins with."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest

import automl
from automl import Choice, Float, Space
from automl.ledger import Ledger
from automl.ledger.database import HeldError

SPACE = Space(Float("m.x", 0, 1, default=0.5), Choice("kind", ["a", None, [1, 2]], default="a"))


def run(tmp_path: Path, trials: int, name: str = "s", **options: Any) -> automl.Result:
    return automl.sweep(
        lambda trial: {"loss": (trial.params["m.x"] - 0.3) ** 2},
        SPACE,
        "minimize loss",
        trials=trials,
        workers=1,
        dispatcher="inline",
        suggester="sobol",
        store=str(tmp_path / "runs"),
        name=name,
        **{"progress": False, **options},
    )


def study() -> optuna.Study:
    found = optuna.create_study()
    distributions = {"m.x": optuna.distributions.FloatDistribution(0, 2)}
    for value in (0.2, 1.5):
        found.add_trial(
            optuna.create_trial(params={"m.x": value}, distributions=distributions, value=0.1)
        )
    return found


def test_several_priors_are_taken_and_the_rest_is_told(tmp_path: Path) -> None:
    earlier = run(tmp_path, 2, "earlier")
    table = tmp_path / "old.csv"
    table.write_text('m.x,kind,loss\n0.25,"[1, 2]",0.7\n0.75,,0.8\n')
    with pytest.warns(UserWarning, match="prior Study: 1 trials added, left out: 1 outside"):
        result = run(tmp_path, 2, prior=[table, study(), "sweep:earlier", earlier])
    added = [t for t in result.trials if t.source == "added"]
    assert [t.params["m.x"] for t in added] == [0.25, 0.75, 0.2, *[0.5, added[4].params["m.x"]] * 2]
    assert [t.params["kind"] for t in added[:2]] == [(1, 2), None]
    assert len(result.trials) == 7 + 2, "imported trials are beside the budget"
    again = run(tmp_path, 3, prior=[table, study()], resume=True)
    assert len(again.trials) == 7 + 3, "they are imported once"


def test_with_resume_the_second_of_two_that_come_at_once_is_told_who_holds_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, 2)
    with closing(Ledger.open(tmp_path / "runs")) as faster:
        faster.hold("s")
        answers = iter([False])  # the other creates it a moment later
        exists = Ledger.exists
        monkeypatch.setattr(Ledger, "exists", lambda it, name: next(answers, exists(it, name)))
        with pytest.raises(HeldError, match="'s' is held by process"):
            run(tmp_path, 3, resume=True)


def test_an_imported_trial_has_the_value_that_counted(tmp_path: Path) -> None:
    def reports_twice(trial: automl.Context) -> None:
        trial.report(1, loss=0.25)
        trial.report(2, loss=0.75)

    options = {"suggester": "sobol", "workers": 1, "dispatcher": "inline", "progress": False}
    store = str(tmp_path / "runs")
    earlier = automl.sweep(
        reports_twice, SPACE, "minimize loss", trials=2, store=store, name="earlier", **options
    )
    assert [t.value for t in earlier.trials] == [0.25, 0.25]
    for source in ("sweep:earlier", earlier):
        begun = run(tmp_path, 1, type(source).__name__, prior=source)
        added = [t for t in begun.trials if t.source == "added"]
        assert [t.value for t in added] == [0.25, 0.25]


def test_a_trial_that_was_stopped_early_is_imported_as_one(tmp_path: Path) -> None:
    def objective(trial: Any) -> None:
        trial.report(0, loss=trial.params["m.x"])
        if trial.number == 1:
            raise optuna.TrialPruned

    earlier = automl.sweep(
        objective, SPACE, "minimize loss", trials=2, dispatcher="inline", store=tmp_path
    )
    assert [str(t.state) for t in earlier.trials] == ["completed", "stopped"]
    pruned = replace(earlier.trials[1], pruned=False)  # by a stopper, not by itself
    source = SimpleNamespace(trials=[earlier.trials[0], pruned])
    begun = run(tmp_path, 1, "next", prior=source)
    assert [str(t.state) for t in begun.trials] == ["completed", "stopped", "completed"]


def test_a_new_sweep_with_imported_trials_does_not_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "old.csv"
    table.write_text("m.x,kind,loss\n0.25,a,0.7\n")
    for trials in (1, 2):
        run(tmp_path, trials, prior=[table], resume=True, progress=None)
        said = capsys.readouterr().err
        assert ("going on with the sweep 's', which has trials: 2" in said) is (trials == 2)
        assert said.count("going on") == trials - 1


def test_enqueued_configurations_come_after_trial_0_and_only_once(tmp_path: Path) -> None:
    wanted = [{"m.x": 0.125, "kind": [1, 2]}, {"kind": None}]
    result = run(tmp_path, 4, enqueue=wanted)
    assert [(t.source, t.params) for t in result.trials[:3]] == [
        ("default", {"m.x": 0.5, "kind": "a"}),
        ("enqueued", {"m.x": 0.125, "kind": (1, 2)}),
        ("enqueued", {"m.x": 0.5, "kind": None}),
    ]
    more = run(tmp_path, 6, enqueue=[*wanted, {"m.x": 0.75}], resume=True)
    assert [t.params["m.x"] for t in more.trials if t.source == "enqueued"] == [0.125, 0.5, 0.75]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"prior": 3}, "a prior is FILE.csv, optuna:URL#STUDY, sweep:NAME"),
        ({"prior": "sweep:none"}, r"no sweep named 'none' in \S+: it has no sweeps yet$"),
        ({"prior": "like:absent"}, "no sweep named 'absent'"),
        ({"enqueue": [{"x": 1}]}, "unknown parameter 'x'"),
        ({"enqueue": {"m.x": 3}}, "m.x must lie in"),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_nothing(
    tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(automl.UsageError, match=said):
        run(tmp_path, 2, **options)
    with pytest.raises(automl.UsageError, match="no sweep"):
        automl.load("s", str(tmp_path / "runs"))
