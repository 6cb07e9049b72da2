"""Looking at sweeps: `status`, `trials`, `best`, `list`, `stop`, quickly and for programs too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from automl.cli import COMMANDS, cli
from automl.core.events import Begun, Ended, Proposed, SweepEvent
from automl.core.goals import Goal
from automl.core.spec import SweepSpec
from automl.core.trial import TrialState
from automl.ledger import Ledger
from search_spaces import Choice, Float, Space
from workers.protocol import Ending, Outcome, Report

ROOT = Path(__file__).parents[3]
SPACE = Space(
    Float("lr", 1e-5, 1e-1, log=True, default=1e-3),
    Choice("precision", ["fp32", "bf16"], default="fp32"),
)
SPEC = SweepSpec("toy", SPACE, (Goal("loss"),))


def completed(number: int, loss: float, **metrics: float) -> list[SweepEvent]:
    outcome = Outcome(
        number, 1, Ending.COMPLETED, {"loss": loss, **metrics}, seconds=2.0, peak_memory_bytes=1000
    )
    params = {"lr": 1e-3 * (number + 1), "precision": "fp32"}
    return [
        Proposed(number, params, "bayes"),
        Begun(number, 1),
        Ended(outcome, TrialState.COMPLETED),
    ]


def failed(number: int) -> list[SweepEvent]:
    outcome = Outcome(
        number, 1, Ending.FAILED, failure="out_of_memory", message="asked for 12 GB", seconds=1.0
    )
    ended = Ended(outcome, TrialState.FAILED, "out_of_memory", "asked for 12 GB")
    return [Proposed(number, {"lr": 0.1, "precision": "bf16"}, "bayes"), Begun(number, 1), ended]


def store(folder: Path, *events: Sequence[SweepEvent], spec: SweepSpec = SPEC) -> str:
    location = str(folder / "runs")
    ledger = Ledger.open(location, create=True)
    name = ledger.create_sweep(spec)
    recorder = ledger.hold(name)
    for event in [event for several in events for event in several]:
        recorder.apply(event)
    recorder.commit()
    ledger.close()
    return location


@pytest.fixture
def runs(tmp_path: Path) -> str:
    return store(tmp_path, completed(0, 2.0), failed(1), completed(2, 1.5, accuracy=float("nan")))


def automl(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


def parsed(*arguments: str) -> Any:
    done = automl(*arguments, "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    return json.loads(done.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_best_says_what_counts_where_the_last_report_was_worse(tmp_path: Path) -> None:
    *begun, ended = completed(1, 1.8)
    reports = [Report(1, 1, i, 10 + i, {"loss": loss}, 1.0) for i, loss in enumerate((1.2, 1.8))]
    assert isinstance(ended, Ended)
    rising = [*begun, *reports, replace(ended, outcome=replace(ended.outcome, metrics={}))]
    runs = store(tmp_path, completed(0, 2.0), rising)
    best = parsed("best", "toy", "--store", runs)
    assert (best["metrics"]["loss"], best["goal_values"], best["baseline_goal_values"]) == (
        1.8,
        {"loss": 1.2},
        {"loss": 2.0},
    )
    shown = automl("best", "toy", "--store", runs).stdout
    assert (best["value"], best["value_from"]) == (1.2, "best report, at step 10")
    assert "loss (best report)" in shown
    assert "loss (last report)" in shown


def test_best_of_several_goals_has_the_pareto_front(tmp_path: Path) -> None:
    spec = replace(SPEC, goals=(Goal("loss"), Goal("size")))
    runs = store(
        tmp_path,
        completed(0, 2.0, size=1.0),
        completed(1, 1.0, size=3.0),
        completed(2, 2.0, size=3.0),
        spec=spec,
    )
    best = parsed("best", "toy", "--store", runs)
    assert (best["number"], [trial["number"] for trial in best["pareto"]]) == (1, [0, 1])
    assert "front of 2" in automl("best", "toy", "--store", runs).stdout


def test_a_sweep_without_success_has_no_best(tmp_path: Path) -> None:
    done = automl("best", "toy", "--store", store(tmp_path, failed(0)), "--json")
    assert (done.exit_code, done.stdout) == (3, "")
    assert "No trial has succeeded. 1 of 1 trials failed" in done.stderr


@pytest.mark.parametrize("verb", ["status", "trials", "best", "stop", "watch", "resume"])
@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ("toi", "did you mean 'toy'?"),
        ("../x", "a name has 1 to 64"),
        ("a\nb", "a name has 1 to 64"),
    ],
)
def test_an_unknown_sweep_is_wrong_usage(runs: str, verb: str, sweep: str, message: str) -> None:
    done = automl(verb, sweep, "--store", runs)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr


@pytest.mark.parametrize("verb", ["status", "trials", "best", "list", "stop", "watch", "resume"])
def test_a_store_that_is_not_there_is_wrong_usage_and_is_not_made(
    tmp_path: Path, verb: str
) -> None:
    arguments = [] if verb == "list" else ["toy"]
    done = automl(verb, *arguments, "--store", str(tmp_path / "absent"))
    assert (done.exit_code, done.stdout) == (2, "")
    assert "there is no store" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_every_verb_has_help_and_a_misspelt_one_a_hint() -> None:
    listing = automl("--help").stdout
    for verb in COMMANDS:
        assert f"  {verb} " in listing
        done = automl(verb, "--help")
        assert done.exit_code == 0
        assert "Usage: " in done.stdout
        assert "Example" in done.stdout, verb
        assert "\\b" not in done.stdout, f"{verb}: a mark of click is shown"
    done = automl("statsu")
    assert done.exit_code == 2
    assert "did you mean 'status'?" in done.stderr
    assert automl("trials").exit_code == 2


def test_looking_imports_neither_torch_nor_ray(runs: str) -> None:
    heavy = ("torch", "ray", "optuna", "ax", "botorch", "pandas", "pydantic")
    code = (
        "import sys\n"
        "from automl.cli import cli\n"
        "for words in ('status toy', 'trials toy', 'best toy', 'list', 'status toy --json'):\n"
        f"    cli([*words.split(), '--store', {runs!r}], standalone_mode=False)\n"
        f"print('LOADED', [name for name in {heavy!r} if name in sys.modules])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.splitlines()[-1] == "LOADED []"


def test_the_log_of_a_trial(runs: str) -> None:
    log = Path(runs) / "sweeps" / "toy" / "trials" / "2" / "logs" / "attempt-1-rank-1.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"epoch 1\n\xff\n")
    assert automl("logs", "toy", "2", "--rank", "1", "--store", runs).stdout.startswith("epoch 1\n")
    absent = automl("logs", "toy", "2", "--store", runs)
    assert absent.exit_code == 2
    assert "there are attempt-1-rank-1.log" in absent.stderr
    assert "there is no trial 9" in automl("logs", "toy", "9", "--store", runs).stderr
    waiting = automl("enqueue", "toy", "lr=0.05", "--store", runs)
    assert waiting.exit_code == 0, waiting.output
    assert "trial 3 of toy has not begun" in automl("logs", "toy", "3", "--store", runs).stderr


def test_a_sweep_is_deleted_with_its_files_unless_it_is_held(runs: str) -> None:
    folder = Path(runs) / "sweeps" / "toy"
    holder = Ledger.open(runs)
    holder.create_sweep(replace(SPEC, name="other"))
    holder.hold("toy")
    refused = automl("delete", "toy", "--yes", "--store", runs)
    assert (refused.exit_code, refused.stdout) == (2, "")
    holder.close()
    assert CliRunner().invoke(cli, ["delete", "toy", "--store", runs], input="n\n").exit_code == 1
    assert folder.is_dir()
    assert automl("delete", "toy", "--yes", "--store", runs).exit_code == 0
    assert not folder.exists()
    assert [info["name"] for info in parsed("list", "--store", runs)] == ["other"]
