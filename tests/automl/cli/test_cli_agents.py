"""Agents and people at the command line: `ask`, `tell`, `stop`, `pause`, `enqueue`, `set`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_sweeps import automl
from click.testing import Result
from pages import blocks

from automl.ledger import Ledger

ROOT = Path(__file__).parents[3]


def ask(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(automl("ask", "toy", "--json", *arguments).output)
    return found


@pytest.fixture
def sweep(folder: Path) -> Path:
    result = automl("sweep", "toy.yaml", "--create")
    assert (result.exit_code, result.output) == (0, "toy is ready for agents: automl ask toy\n")
    return folder


def states() -> list[str]:
    return [trial["state"] for trial in json.loads(automl("trials", "toy", "--json").output)]


def error(result: Result, status: int) -> str:
    assert result.exit_code == status, result.output
    assert "Traceback" not in result.output
    return result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tell", "toy", "0", "loss"), "a metric is METRIC=NUMBER, such as loss=0.12, got 'loss'"),
        (("tell", "toy", "0", "loss=low"), "got 'loss=low'"),
        (("tell", "toy", "0", "loss=1", "loss=2"), "each metric has a name and is given once"),
        (("tell", "toy", "0", "acc=1"), "no metric 'loss' was reported"),
        (("tell", "toy", "9", "loss=1"), "there is no trial 9"),
        (("tell", "toy", "0.3"), "'0.3' is not a valid integer.\n"),
        (("tell", "toy", "0", "--step", "1"), "a report needs a metric"),
        (("tell", "toy", "0", "--failed", "crashed", "loss=1"), "neither a step nor metrics"),
        (("tell", "toy", "0", "--step", "first"), "'first' is not a valid integer"),
        (("ask", "toy", "--lease", "soon"), "soon"),
        (("ask", "yot"), "no sweep named 'yot'"),
        (("stop", "toy", "--trial", "9"), "there is no trial 9"),
        (("enqueue", "toy", "--trial", "9"), "there is no trial 9"),
        (("enqueue", "toy"), "give values of parameters, or the number of a trial"),
        (("set", "toy", "trials=9"), "'trials' cannot be set: did you mean 'budget.trials'?"),
        (("set", "toy", "9"), "an override is KEY=VALUE"),
    ],
)
def test_a_wrong_argument_is_status_2(
    sweep: Path, arguments: tuple[str, ...], message: str
) -> None:
    ask()
    assert message in error(automl(*arguments), 2)


def test_people_steer_trials_of_agents(sweep: Path) -> None:
    ask()
    assert automl("stop", "toy", "--trial", "0").output == "trial 0 stops at its next report\n"
    result = automl("tell", "toy", "0", "--step", "1", "loss=0.2")
    assert (result.exit_code, "stopped by" in result.output) == (10, True)
    automl("tell", "toy", "0")
    assert "trial 0 is stopped already" in error(automl("stop", "toy", "--trial", "0"), 1)
    assert "cannot pause" in error(automl("pause", "toy", str(ask()["trial"])), 1)
    assert "only a paused one" in error(automl("resume", "toy", "--trial", "1"), 1)
    assert automl("enqueue", "toy", "--trial", "0").exit_code == 0
    assert states() == ["stopped", "running", "waiting"]
    assert automl("stop", "toy", "--trial", "2").output == "trial 2 is stopped\n"
    assert automl("set", "toy", "budget.trials=9").stdout == "the budget is now: trials 9\n"
    assert "give no more" not in automl("ask", "toy").output
    assert "2 stop at their agents' next reports" in automl("stop", "toy").output
    assert "it is finished" in error(automl("ask", "toy"), 3)
    assert automl("tell", "toy", "1", "--step", "1", "loss=1").exit_code == 10


def test_an_agent_in_bash_runs_a_whole_sweep(tmp_path: Path) -> None:
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    script, *_ = blocks(ROOT / "docs" / "guides" / "agents.md", "bash")
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nspace: {x: {low: 0.0, high: 1.0}}\ngoals: minimize loss\n"
        "suggester: sobol\nbudget: {trials: 2}\n"
    )
    program = tmp_path / "bin" / "automl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m automl "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [program, "sweep", "mine.yaml", "--create", "--store", "runs"],
        cwd=tmp_path,
        env=environment,
        check=True,
    )
    subprocess.run(
        ["bash", "-eu", "-c", script, "agent", "runs"], cwd=tmp_path, env=environment, check=True
    )
    ledger = Ledger.open(tmp_path / "runs")
    snapshot = ledger.snapshot("mine")
    assert snapshot.state == "finished"
    assert [len(trial.reports) for trial in snapshot.trials] == [3, 3]
    assert all(trial.state == "completed" for trial in snapshot.trials)
    ledger.close()
