"""`automl sweep` and `resume`: a real small sweep to its end."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_sweeps import CONFIG, Start, automl, sweep


def trials(name: str = "toy") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(automl("trials", name, "--json").stdout)
    return found


def test_a_sweep_runs_to_its_summary(folder: Path) -> None:
    done = sweep()
    assert done.exit_code == 0, done.output
    found = trials()
    assert [trial["number"] for trial in found] == [0, 1, 2, 3]
    assert found[0]["params"] == {"x": 0.9, "kind": "good"}
    assert {trial["failure"] for trial in found} == {None, "crashed"}
    assert all(
        trial["state"] == "completed" for trial in found if trial["params"]["kind"] == "good"
    )
    assert found[0]["metrics"]["double"] == 1.8
    best = json.loads(automl("best", "toy", "--json").stdout)
    assert best["metrics"]["loss"] == min(t["metrics"].get("loss", 9.0) for t in found)
    for words in (
        "trial 0 completed  loss 0.9",
        "toy finished (its budget is used up): 4 trials",
        "The default: 0.9; the change is -",
        "automl trials toy",
    ):
        assert words in done.stdout


def test_names_that_are_in_use(folder: Path) -> None:
    assert sweep("--trials", "1").exit_code == 0
    again = sweep("--trials", "1")
    assert again.exit_code == 0
    assert "toy is in use: this sweep is toy-2" in again.stderr
    refused = sweep("--trials", "1", "--name", "toy")
    assert refused.exit_code == 2
    assert "--name: there is a sweep named 'toy' already" in refused.stderr
    names = [info["name"] for info in json.loads(automl("list", "--json").stdout)]
    assert names == ["toy", "toy-2"]


def test_a_sweep_in_which_every_trial_fails_ends_with_status_3(folder: Path) -> None:
    done = sweep("space.kind=[bad]", "--trials", "9")
    assert done.exit_code == 3
    assert "No trial has succeeded." in done.stdout
    assert "ValueError: a bad kind" in done.stdout
    assert len(trials()) == 3
    assert trials()[0]["message"] == "ValueError: a bad kind"
    assert 'raise ValueError("a bad kind")' in automl("logs", "toy", "1").stdout


def test_an_interrupted_sweep_ends_with_130_and_resumes(folder: Path, process: Start) -> None:
    (folder / "toy.yaml").write_text(
        CONFIG.replace("[good, bad]", "[good]").replace("trials: 4", "trials: 12")
    )
    arguments = ["--objective", "mine.py:objective", "--dispatcher", "inline"]
    running = process("sweep", "toy.yaml", *arguments, PAUSE="0.5")
    wait_for(
        lambda: len([t for t in status_trials(folder) if t["state"] == "completed"]) >= 1, running
    )
    running.send_signal(signal.SIGINT)
    out, err = running.communicate()
    assert running.returncode == 130, err
    assert "automl resume toy --objective mine.py:objective" in out
    assert "Traceback" not in err
    before = trials()
    assert json.loads(automl("status", "toy", "--json").stdout)["state"] == "interrupted"
    assert len(before) < 12

    resumed = process("resume", "toy", *arguments)
    out, err = resumed.communicate()
    assert resumed.returncode == 0, err
    after = trials()
    assert [trial["number"] for trial in after] == list(range(12))
    assert {trial["state"] for trial in after} == {"completed"}
    done = [trial for trial in before if trial["state"] == "completed"]
    assert [trial for trial in after if trial["number"] in {t["number"] for t in done}] == done


def test_a_function_runs_with_what_stands_beside_its_file(folder: Path, process: Start) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "helper.py").write_text("def square(x):\n    return x * x\n")
    text = (
        "import helper\n\ndef f(trial):\n    print('hello')\n"
        "    return {'loss': helper.square(trial.params['x'])}\n"
    )
    (folder / "sub" / "mine.py").write_text(text)
    running = process(
        "sweep", "toy.yaml", "--objective", "sub/mine.py:f", "--trials", "2", "--workers", "1"
    )
    out, err = running.communicate()
    assert running.returncode == 0, err
    assert "toy finished (its budget is used up): 2 trials" in out
    assert trials()[0]["metrics"]["loss"] == pytest.approx(0.81)
    assert automl("logs", "toy", "0").stdout.endswith("hello\n")


def status_trials(folder: Path) -> list[dict[str, Any]]:
    return (
        trials()
        if (folder / ".automl" / "ledger.sqlite3").exists()
        and automl("trials", "toy").exit_code == 0
        else []
    )


def wait_for(
    condition: Callable[[], bool], running: subprocess.Popen[str], seconds: float = 240.0
) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.1)


ASKING = """
def objective(trial):
    if trial.suggest_categorical("kind", ["a", "b"]) == "a":
        return trial.suggest_float("x", 1e-6, 1.0, log=True)
    return trial.suggest_int("n", 1, 5)
"""


def test_a_function_without_a_configuration_declares_its_space(folder: Path) -> None:
    (folder / "asks.py").write_text(ASKING)
    options = ("--objective", "asks.py:objective", "--dispatcher", "inline")
    done = automl("sweep", *options, "--goals", "minimize value", "--trials", "7")
    assert done.exit_code == 0, done.output
    assert {name for trial in trials("asks") for name in trial["params"]} == {"kind", "x", "n"}
    again = automl("resume", "asks", *options, "--trials", "9")
    assert again.exit_code == 0, again.output
    assert len(trials("asks")) == 9
    assert automl("export", "asks", "-o", "out").exit_code == 0
    declared = automl("sweep", "out/space.yaml", *options, "--trials", "3", "--name", "declared")
    assert declared.exit_code == 0, declared.output
    assert {len(trial["params"]) for trial in trials("declared")} == {2}
    space = (folder / "out" / "space.yaml").read_text()
    assert '"n": {"low":1,"high":5,"when":{"kind":["b"]}}' in space
    assert automl("sweep", "--trials", "3").exit_code == 2
    assert automl("sweep", *options, "--trials", "3").exit_code == 2
