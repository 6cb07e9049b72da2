"""A sweep that is resumed with another space keeps what it has learned."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import automl
from automl import Choice, Float, Int, Space
from automl.cli import cli
from automl.core import Noted
from automl.ledger import Ledger
from automl.suggesters import SUGGESTERS

BEFORE = Space(Float("x", 0, 1, default=0.5), Choice("kind", ["a", "b"], default="a"))
WIDER = Space(
    Float("x", 0, 3, default=0.5),
    Choice("kind", ["a", "b", "c"], default="a"),
    Float("extra", 0, 1, default=0.5),
)
NARROWER = Space(Float("x", 0.9, 1, default=0.95), Choice("kind", ["a"], default="a"))


def loss(params: Mapping[str, Any]) -> float:
    return float((params["x"] - 2) ** 2 + params.get("extra", 0.5))


def run(tmp_path: Path, space: Space, trials: int, **options: Any) -> automl.Result:
    return automl.sweep(
        lambda trial: {"loss": loss(trial.params)},
        space,
        "minimize loss",
        trials=trials,
        workers=1,
        dispatcher="inline",
        store=str(tmp_path),
        name="s",
        **{"progress": False, **options},
    )


def notes(tmp_path: Path) -> list[str]:
    with closing(Ledger.open(str(tmp_path), readonly=True)) as ledger:
        return [e.message for e in ledger.events("s") if isinstance(e, Noted) and e.kind == "space"]


def test_the_best_trial_has_the_parameters_that_are_new_since(tmp_path: Path) -> None:
    run(tmp_path, BEFORE, 10)
    space = Space(*BEFORE.parameters.values(), Float("extra", 0.9, 1, default=0.9))
    after = run(tmp_path, space, 11, resume=True)
    best = {**after.trials[after.best.number].params, "extra": 0.9}
    assert after.best.number < 10
    assert after.best.params == after.recommended.params == best
    place = ["--store", str(tmp_path)]
    own = tmp_path / "sweeps" / "s" / "trials" / str(after.best.number)
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
    before = run(tmp_path, BEFORE, 10)
    after = run(tmp_path, WIDER, 16, resume=True)
    assert [t.params for t in after.trials[:10]] == [t.params for t in before.trials], "as stored"
    new = after.trials[10:]
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
    run(tmp_path, WIDER, 10)
    space = Space(*NARROWER.parameters.values(), WIDER.parameters["extra"])
    after = run(tmp_path, space, 16, resume=True, suggester=suggester)
    for trial in after.trials[10:]:
        space.accept(trial.params)


def test_what_cannot_change_ends_in_one_message_and_releases_the_sweep(tmp_path: Path) -> None:
    run(tmp_path, BEFORE, 2)
    with pytest.raises(automl.UsageError, match="kind is gone from the space"):
        run(tmp_path, Space(Float("x", 0, 1)), 3, resume=True)
    with pytest.raises(automl.UsageError, match="x was of type float and is now of type int"):
        automl.Optimizer(
            Space(Int("x", 0, 1), Choice("kind", ["a", "b"])),
            "minimize loss",
            store=str(tmp_path),
            name="s",
        )
    assert len(run(tmp_path, BEFORE, 3, resume=True).trials) == 3


def test_on_the_command_line_by_an_edited_file(tmp_path: Path) -> None:
    train = tmp_path / "train.py"
    train.write_text("def objective(trial):\n    return {'loss': (trial.params['x'] - 2) ** 2}\n")
    config = tmp_path / "s.yaml"
    config.write_text("space: {x: {low: 0.0, high: 1.0}, m.kind: [a, b]}\ngoals: minimize loss\n")
    common = ["--objective", f"{train}:objective", "--dispatcher", "inline", "--json"]
    store = ["--store", str(tmp_path / "runs")]

    def ended(*arguments: str) -> Any:
        return CliRunner().invoke(cli, [*arguments, *common, *store])

    assert ended("sweep", str(config), "--trials", "3").exit_code == 0
    config.write_text(
        "space: {x: {low: 0.0, high: 3.0}, m.kind: [b, c], n: {low: 0, high: 4, default: 1}}\n"
        "goals: minimize loss\n"
    )
    done = ended("resume", "s", "--config", str(config), "--trials", "6")
    assert done.exit_code == 0, done.output
    config.write_text(
        "space: {x: {low: 1.0, high: 2.0}, m.kind: [c], n: [1, 2]}\ngoals: minimize loss\n"
        "stopper: median\nworkers: 3\n"
    )
    refused = ended("resume", "s", "--config", str(config), "--trials", "8")
    assert refused.exit_code == 2
    assert "n was of type int and is now of type choice" in refused.output
    assert "changed by the configuration: stopper: " in refused.output
    config.write_text("space: {x: {low: 1.0, high: 2.0}}\ngoals: maximize loss\n")
    refused = ended("resume", "s", "--config", str(config), "--trials", "8")
    assert refused.exit_code == 2
    assert "has the goal 'minimize loss', got 'maximize loss'" in refused.output
    wrong = ended("resume", "s", "seed=3", "--trials", "8")
    assert wrong.exit_code == 2
    assert "cannot be set" in wrong.output
    with closing(Ledger.open(store[1], readonly=True)) as ledger:
        space = ledger.spec("s").space
    assert list(space.parameters.values()) == [
        Float("x", 0.0, 3.0),
        Choice("m.kind", ["b", "c"]),
        Int("n", 0, 4, default=1),
    ]
