"""`automl.sweep(prior=, enqueue=)`: what a sweep begins with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from click.testing import CliRunner

import automl
from automl import Choice, Float, Int, Space
from automl.cli import cli
from automl.core import Noted
from automl.ledger import Ledger
from automl.ledger.database import HeldError
from automl.suggesters import SUGGESTERS

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


# A sweep that is resumed with another space keeps what it has learned.

BEFORE = Space(Float("x", 0, 1, default=0.5), Choice("kind", ["a", "b"], default="a"))
WIDER = Space(
    Float("x", 0, 3, default=0.5),
    Choice("kind", ["a", "b", "c"], default="a"),
    Float("extra", 0, 1, default=0.5),
)
NARROWER = Space(
    Float("x", 0.9, 1, default=0.95),
    Choice("kind", ["a"], default="a"),
    WIDER.parameters["extra"],
)


def loss(params: Mapping[str, Any]) -> float:
    return float((params["x"] - 2) ** 2 + params.get("extra", 0.5))


def grown(tmp_path: Path, space: Space, trials: int, **options: Any) -> automl.Result:
    return automl.sweep(
        lambda trial: {"loss": loss(trial.params)},
        space,
        "minimize loss",
        trials=trials,
        workers=1,
        dispatcher="inline",
        store=str(tmp_path),
        name="s",
        **{"progress": False, "suggester": "random", **options},
    )


def notes(tmp_path: Path) -> list[str]:
    with closing(Ledger.open(str(tmp_path), readonly=True)) as ledger:
        return [e.message for e in ledger.events("s") if isinstance(e, Noted) and e.kind == "space"]


def test_the_best_trial_has_the_parameters_that_are_new_since(tmp_path: Path) -> None:
    grown(tmp_path, BEFORE, 10, suggester="bayes")
    space = Space(*BEFORE.parameters.values(), Float("extra", 0.9, 1, default=0.9))
    after = grown(tmp_path, space, 11, resume=True, suggester="bayes")
    best = {**after.trials[after.best.number].params, "extra": 0.9}
    assert after.best.number < 10
    # Its kind has no effect.
    assert after.best.params == after.recommended.params | {"kind": best["kind"]} == best
    place = ["--store", str(tmp_path)]
    own = tmp_path / "sweeps" / "s" / "trials" / str(after.recommended.trials[0])
    for name in ("work", "mine"):
        (own / name).mkdir(parents=True)
    found = CliRunner().invoke(cli, ["best", "s", "--json", *place]).stdout
    assert json.loads(found)["params"] == best
    done = CliRunner().invoke(cli, ["export", "s", "-o", str(tmp_path / "out"), *place])
    assert done.exit_code == 0, done.output
    assert "extra: [0.9]" in (tmp_path / "out" / "config.yaml").read_text()
    assert not (tmp_path / "out" / "work").exists(), "a program has written nothing"
    assert (tmp_path / "out" / "mine").is_dir()


def test_a_wider_space_keeps_what_was_learned(tmp_path: Path) -> None:
    before = grown(tmp_path, BEFORE, 10, suggester="bayes")
    after = grown(tmp_path, WIDER, 16, resume=True, suggester="bayes")
    assert [t.params for t in after.trials[:10]] == [t.params for t in before.trials], "as stored"
    new = after.trials[10:]
    assert after.recommended.interval is not None, "a model of all of them can be believed"
    assert {t.source for t in new} == {"bayes"}, "it did not begin again"
    for trial in new:
        WIDER.accept(trial.params)
    assert min(loss(t.params) for t in new) < min(loss(t.params) for t in before.trials)
    assert notes(tmp_path) == [
        "Float('x', 0, 1, default=0.5) became Float('x', 0, 3, default=0.5); "
        "Choice('kind', ['a', 'b'], default='a') became "
        "Choice('kind', ['a', 'b', 'c'], default='a'); "
        "extra is new: Float('extra', 0, 1, default=0.5); earlier trials count as 0.5"
    ]
    page = tmp_path / "page.html"
    after.save_report(page)
    assert "changes of the space" in page.read_text()


@pytest.mark.parametrize(
    "suggester", [n for n in SUGGESTERS.names() if n not in ("ax", "optuna-gp")]
)
def test_a_narrower_space_is_never_left(tmp_path: Path, suggester: str) -> None:
    grown(tmp_path, WIDER, 8)
    after = grown(tmp_path, NARROWER, 12, resume=True, suggester=suggester)
    for trial in after.trials[8:]:
        NARROWER.accept(trial.params)


def test_what_cannot_change_ends_in_one_message_and_releases_the_sweep(tmp_path: Path) -> None:
    grown(tmp_path, BEFORE, 2)
    with pytest.raises(automl.UsageError, match="kind is gone from the space"):
        grown(tmp_path, Space(Float("x", 0, 1)), 3, resume=True)
    with pytest.raises(automl.UsageError, match="x was of type float and is now of type int"):
        automl.Optimizer(
            Space(Int("x", 0, 1), Choice("kind", ["a", "b"])),
            "minimize loss",
            store=str(tmp_path),
            name="s",
        )
    assert len(grown(tmp_path, BEFORE, 3, resume=True).trials) == 3


GOALS = "goals: minimize loss\nsuggester: random\n"


def test_on_the_command_line_by_an_edited_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(
        "def f(trial):\n    return {'loss': (trial.params['x'] - 2) ** 2}\n"
    )
    common = ["--objective", "train.py:f", "--dispatcher", "inline", "--json"]

    def ended(status: int, *words: str, config: str = "") -> str:
        if config:
            Path("s.yaml").write_text(config)
        done = CliRunner().invoke(cli, [*words, *common])
        assert done.exit_code == status, done.output
        return done.output

    text = f"space: {{x: {{low: 0.0, high: 1.0}}, m.kind: [a, b]}}\n{GOALS}"
    ended(0, "sweep", "s.yaml", "--trials", "3", config=text)
    text = "space: {x: {low: 0.0, high: 3.0}, m.kind: [b, c], n: {low: 0, high: 4, default: 1}}\n"
    again = ("resume", "s", "--config", "s.yaml")
    ended(0, *again, "--trials", "6", config=text + GOALS)
    text = f"space: {{x: {{low: 1.0, high: 2.0}}, m.kind: [c], n: [1, 2]}}\n{GOALS}"
    said = ended(2, *again, "--trials", "8", config=f"{text}stopper: median\nworkers: 3\n")
    assert "n was of type int and is now of type choice" in said
    assert "changed by the configuration: stopper: " in said
    text = "space: {x: {low: 1.0, high: 2.0}}\ngoals: maximize loss\n"
    said = ended(2, *again, "--trials", "8", config=text)
    assert "has the goal 'minimize loss', got 'maximize loss'" in said
    assert "cannot be set" in ended(2, "resume", "s", "seed=3", "--trials", "8")
    with closing(Ledger.open(".automl", readonly=True)) as ledger:
        space = ledger.spec("s").space
    assert list(space.parameters.values()) == [
        Float("x", 0.0, 3.0),
        Choice("m.kind", ["b", "c"]),
        Int("n", 0, 4, default=1),
    ]
