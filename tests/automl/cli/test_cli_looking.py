"""Looking at sweeps: `status`, `trials`, `best`, `list`, `stop`, quickly and for programs too."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from cli_sweeps import ROOT, automl, parsed, ran, recorded, refused

from automl.cli import COMMANDS
from automl.core.events import Begun, Closed, Ended, Noted, Proposed, SweepEvent
from automl.core.goals import Goal
from automl.core.spec import SweepSpec
from automl.core.trial import TrialState
from automl.ledger import Ledger
from automl.ledger.database import FILE_NAME
from search_spaces import Choice, Float, Space
from workers.protocol import Ending, Outcome, Report

SPACE = Space(
    Float("lr", 1e-5, 1e-1, log=True, default=1e-3),
    Choice("precision", ["fp32", "bf16"], default="fp32"),
)
SPEC = SweepSpec("toy", SPACE, (Goal("loss"),))


def trial(
    number: int, failure: str | None = None, message: str = "", data: str = "", **metrics: float
) -> list[SweepEvent]:
    """The events of a trial that is completed, or failed."""
    ending, state = Ending.COMPLETED, TrialState.COMPLETED
    if failure:
        ending, state = Ending.FAILED, TrialState.FAILED
    outcome = Outcome(number, 1, ending, metrics, failure, message, 2.0, 1000)
    params = {"data": data} if data else {"lr": 1e-3 * (number + 1), "precision": "fp32"}
    ended = Ended(outcome, state, failure, message, at=1.0)
    return [Proposed(number, params, "bayes"), Begun(number, 1, at=0.0), ended]


ROOM = ("out_of_memory", "asked for 12 GB")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> str:
    events = [*trial(0, loss=2.0), *trial(1, *ROOM), *trial(2, loss=1.5, accuracy=float("nan"))]
    return recorded(tmp_path_factory.mktemp("runs"), SPEC, events)


def test_best_says_what_counts_where_the_last_report_was_worse(tmp_path: Path) -> None:
    *begun, ended = trial(1, loss=1.8)
    reports = [Report(1, 1, i, 10 + i, {"loss": loss}, 1.0) for i, loss in enumerate((1.2, 1.8))]
    assert isinstance(ended, Ended)
    rising = [*begun, *reports, replace(ended, outcome=replace(ended.outcome, metrics={}))]
    runs = recorded(tmp_path, SPEC, [*trial(0, loss=2.0), *rising])
    best = parsed("best", "toy", "--store", runs)
    assert (best["metrics"]["loss"], best["goal_values"], best["baseline_goal_values"]) == (
        1.8,
        {"loss": 1.2},
        {"loss": 2.0},
    )
    shown = ran("best", "toy", "--store", runs).stdout
    assert (best["value"], best["value_from"]) == (1.2, "best report, at step 10")
    assert "loss (best report)" in shown
    assert "loss (last report)" in shown


def test_best_of_several_goals_has_the_pareto_front(tmp_path: Path) -> None:
    spec = replace(SPEC, goals=(Goal("loss"), Goal("size")))
    sizes = ((2.0, 1.0), (1.0, 3.0), (2.0, 3.0))
    trials = [trial(number, loss=loss, size=size) for number, (loss, size) in enumerate(sizes)]
    runs = recorded(tmp_path, spec, [event for trial in trials for event in trial])
    best = parsed("best", "toy", "--store", runs)
    assert (best["number"], [trial["number"] for trial in best["pareto"]]) == (1, [0, 1])
    assert "front of 2" in ran("best", "toy", "--store", runs).stdout


def test_a_sweep_without_success_has_no_best(tmp_path: Path) -> None:
    said = refused(
        "best", "toy", "--store", recorded(tmp_path, SPEC, trial(0, *ROOM)), "--json", status=3
    )
    assert "No trial has succeeded. 1 of 1 trials failed" in said


LOOKING = ("status", "trials", "best", "stop", "watch", "resume")


@pytest.mark.parametrize("verb", LOOKING)
def test_an_unknown_sweep_or_store_is_wrong_usage_and_nothing_is_made(
    runs: str, tmp_path: Path, verb: str
) -> None:
    assert "did you mean 'toy'?" in refused(verb, "toi", "--store", runs)
    for name in ("../x", "a\nb"):
        assert "a name has 1 to 64" in refused(verb, name, "--store", runs)
    for words in ((verb, "toy"), ("list",)):
        assert "there is no store" in refused(*words, "--store", str(tmp_path / "absent"))
    assert list(tmp_path.iterdir()) == []


def test_every_verb_has_help_and_a_misspelt_one_a_hint() -> None:
    listing = ran("--help").stdout
    for verb in COMMANDS:
        assert f"  {verb} " in listing
        shown = ran(verb, "--help").stdout
        assert "Usage: " in shown
        assert "Example" in shown, verb
        assert "\\b" not in shown, f"{verb}: a mark of click is shown"
    assert "did you mean 'status'?" in refused("statsu")


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


def test_the_log_of_a_trial(runs: str, tmp_path: Path) -> None:
    shutil.copytree(runs, tmp_path / "runs")
    store = ("--store", str(tmp_path / "runs"))
    log = tmp_path / "runs" / "sweeps" / "toy" / "trials" / "2" / "logs" / "attempt-1-rank-1.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"epoch 1\n\xff\n")
    assert ran("logs", "toy", "2", "--rank", "1", *store).stdout.startswith("epoch 1\n")
    assert "there are attempt-1-rank-1.log" in refused("logs", "toy", "2", *store)
    assert "there is no trial 9" in refused("logs", "toy", "9", *store)
    ran("enqueue", "toy", "lr=0.05", *store)
    assert "it has not begun" in refused("logs", "toy", "3", *store)


def test_a_sweep_is_deleted_with_its_files_unless_it_is_held(runs: str, tmp_path: Path) -> None:
    shutil.copytree(runs, tmp_path / "runs")
    store = ("--store", str(tmp_path / "runs"))
    folder = tmp_path / "runs" / "sweeps" / "toy"
    folder.mkdir(parents=True, exist_ok=True)
    holder = Ledger.open(tmp_path / "runs")
    holder.create_sweep(replace(SPEC, name="other"))
    holder.hold("toy")
    refused("delete", "toy", "--yes", *store)
    holder.close()
    assert automl("delete", "toy", *store, input="n\n").exit_code == 1
    assert folder.is_dir()
    ran("delete", "toy", "--yes", *store)
    assert not folder.exists()
    assert [info["name"] for info in parsed("list", *store)] == ["other"]


# Escape sequences of a ledger, a configuration or a log do not reach the terminal.

HOSTILE = "\x1b]0;owned\x07\x1b[31m\x9b2J\u202e"
HOSTILE_SPACE = Space(Choice("data", ["plain", "b\x1b[2J"]))
FORBIDDEN = set("\x1b\x07\x9b\u202e")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A sweep with escape sequences in values, metrics, messages, notes and logs."""
    events = [
        Noted("fallback", HOSTILE, at=0.0),
        *trial(0, data="b\x1b[2J", **{"loss": 1.0, f"m{HOSTILE}": 2.0}),
        *trial(1, "crashed", HOSTILE, data="b\x1b[2J"),
        Closed("finished"),
    ]
    spec = SweepSpec("toy", HOSTILE_SPACE, (Goal("loss"),))
    folder = tmp_path_factory.mktemp("runs")
    found = recorded(folder, spec, events)
    log = folder / "sweeps" / "toy" / "trials" / "0" / "logs" / "attempt-1-rank-0.log"
    log.parent.mkdir(parents=True)
    log.write_text(f"10%\r20%\r\n\x1b[32mgreen\x1b[0m {HOSTILE}\n")
    return found


@pytest.mark.parametrize(
    "words",
    ["best toy", "best toy --json", "trials toy", "trials toy --json", "status toy", "logs toy 0"],
)
def test_no_verb_prints_control_characters(hostile: str, words: str) -> None:
    shown = ran(*words.split(), "--store", hostile).output
    assert not FORBIDDEN & set(shown)
    assert "\\u001b" in shown
    if "--json" in words:
        found = json.loads(shown)
        assert (found if isinstance(found, dict) else found[0])["params"] == {"data": "b\x1b[2J"}
    if words.startswith("logs"):
        assert shown.startswith("10%\n20%\ngreen ")


def test_the_name_of_a_sweep_prints_none(hostile: str, tmp_path: Path) -> None:
    shutil.copytree(hostile, tmp_path / "s")
    with closing(sqlite3.connect(tmp_path / "s" / FILE_NAME)) as connection, connection:
        connection.execute("UPDATE sweeps SET name = ?", [HOSTILE])
    for words in ((f"x{HOSTILE}", "--store", hostile), ("--store", str(tmp_path / "s"))):
        ended = automl("status", *words)
        assert ended.exit_code == 2
        assert not FORBIDDEN & set(ended.output)


# `automl doctor` and `space`: what there is to run.

CONFIG = str(ROOT / "configs" / "nmt.yaml")


def test_doctor_says_what_each_strategy_needs_and_what_store_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = parsed("doctor")
    assert list(tmp_path.iterdir()) == []
    assert found["hardware"]["num_cpus"] >= 1
    abilities = {(a["kind"], a["name"]): a["lacks"] for a in found["abilities"]}
    for works in (("precision", "fp32"), ("strategy", "single"), ("store", ".automl")):
        assert abilities[works] == ""
    if not found["hardware"]["gpus"]:
        assert "CUDA" in abilities["precision", "tf32"]
    (tmp_path / "file").touch()
    assert "strategy ddp" in ran("doctor").stdout
    abilities = parsed("doctor", "--store", "file/runs")["abilities"]
    assert "is not a folder" in {a["name"]: a["lacks"] for a in abilities}["file/runs"]


def test_the_space_of_a_configuration_is_shown_with_what_is_left_out() -> None:
    found = parsed("space", CONFIG)
    rate = next(p for p in found["parameters"] if p["name"] == "learning_rate")
    assert (rate["type"], rate["log"]) == ("float", True)
    assert found["workload"] == "translation"
    assert {"parameter", "value", "reason"} == set(found["dropped"][0])
    assert found["default"]["precision"] == "fp32"
    everything = parsed("space", CONFIG, "space=auto")
    assert len(everything["parameters"]) > len(found["parameters"])
    table = ran("space", CONFIG).stdout
    assert "left out on this hardware:" in table
    assert "on a log scale" in table


def test_a_missing_data_file_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "absent"
    said = refused("sweep", CONFIG, "data.name=multi30k", f"data.dir={folder}")
    assert len(said.splitlines()) == 1
    assert str(folder) in said
