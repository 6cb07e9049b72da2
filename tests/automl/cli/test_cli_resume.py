"""A sweep is resumed where it began, as it was run, by the line that was printed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_sweeps import automl

from automl.core.resuming import shell_line
from automl.ledger import Ledger

CONFIG = r"""
name: mine
goals: minimize loss
space:
  x: {low: 0.0, high: 1.0, default: 0.9}
budget: {trials: 1}
suggester: sobol
reports: {loss: 'loss (\S+)'}
"""
PROGRAM = "import sys\nprint('loss', sys.argv[1])\n"
TRAIN = ("--", sys.executable, "-S", "my program.py", "{x}")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.yaml").write_text(CONFIG)
    (tmp_path / "my program.py").write_text(PROGRAM)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    done = automl("sweep", "mine.yaml", "--store", "my runs", "--dispatcher", "inline", *TRAIN)
    assert done.exit_code == 0, done.output
    return tmp_path


def num_trials(folder: Path) -> int:
    return len(Ledger.open(folder / "my runs", readonly=True).trials("mine"))


def test_the_line_works_if_it_is_pasted_and_runs_as_before(folder: Path) -> None:
    said = automl("resume", "mine", "--store", "my runs", *TRAIN).stderr
    line = said.partition("raise --trials or --budget: ")[2]
    assert "--trials 10" in line
    pasted = line.replace("automl", f"{shell_line([sys.executable])} -m automl", 1)
    paths = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(
        pasted, shell=True, capture_output=True, text=True, env=paths, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert num_trials(folder) == 10
    spec = Ledger.open(folder / "my runs", readonly=True).spec("mine")
    assert spec.dispatcher == "inline", "it was not typed again"


def test_a_command_is_refused_in_another_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "elsewhere" / "my program.py").write_text("raise SystemExit('another program')")
    monkeypatch.chdir(folder / "elsewhere")
    words = ("resume", "mine", "--store", str(folder / "my runs"), "--trials", "2")
    refused = automl(*words, *TRAIN)
    assert refused.exit_code == 2
    assert f"began in the folder {folder}, and this is {folder / 'elsewhere'}" in refused.stderr
    assert "--cwd . -- " in refused.stderr
    assert num_trials(folder) == 1
    done = automl(*words, "--cwd", str(folder), *TRAIN)
    assert done.exit_code == 0, done.output
    assert num_trials(folder) == 2


def test_a_folder_that_is_not_there(folder: Path) -> None:
    refused = automl("resume", "mine", "--store", "my runs", "--cwd", "nowhere", *TRAIN)
    assert refused.exit_code == 2
    assert "--cwd: there is no folder 'nowhere'" in refused.stderr


def test_another_command_is_named(folder: Path) -> None:
    (folder / "other.py").write_text(PROGRAM)
    other = (*TRAIN[:3], "other.py", "{x}")
    for command, number in ((TRAIN, "2"), (other, "3")):
        done = automl("resume", "mine", "--store", "my runs", "--trials", number, *command)
        assert done.exit_code == 0, done.output
        assert ("the results of both are compared" in done.stderr) == (command is other)
    assert "'my program.py'" in done.stderr
    assert "runs -- " in done.stderr
    assert num_trials(folder) == 3


def test_fewer_trials_than_there_are_begin_none(folder: Path) -> None:
    words = ("resume", "mine", "--store", "my runs", "--trials")
    assert "no new one begins" not in automl(*words, "4", *TRAIN).stderr
    done = automl(*words, "2", *TRAIN)
    assert "mine has 4 trials, and --trials 2 counts them too: no new one begins" in done.stderr
    assert done.exit_code == 0
    assert num_trials(folder) == 4
