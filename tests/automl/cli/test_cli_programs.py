"""Programs with the habits of scripts that others wrote are tuned as the guide says, unchanged."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_sweeps import automl

PROGRAMS = Path(__file__).parents[2] / "programs"
CONFIG = r"""
name: mine
goals: minimize valid_loss
space:
  lr: {low: 1.0, high: 40.0, log: true, default: 20.0}
  batch-size: [8, 16]
constraints: [batch-size >= 8]
budget: {trials: 4}
suggester: sobol
reports: {valid_loss: 'valid loss\s+(\S+)', step: 'end of epoch\s+(\d+)'}
"""
MODEL = (sys.executable, "-S", "language_model.py")
OPTIONS = ("--lr", "{lr}", "--batch-size", "{batch-size}")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for path in PROGRAMS.iterdir():
        shutil.copy(path, tmp_path)
    (tmp_path / "mine.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trials(name: str = "mine") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(automl("trials", name, "--json").stdout)
    return found


def sweep(*arguments: str, dispatcher: str = "inline") -> Any:
    done = automl("sweep", "mine.yaml", "--dispatcher", dispatcher, *arguments)
    assert done.exit_code == 0, done.output
    return done


def test_a_trial_may_have_a_folder_of_its_own(folder: Path) -> None:
    words = ("workers=2", "budget.trials=2", "--", *MODEL, *OPTIONS)
    sweep("cwd=trial", *words, dispatcher="local")
    assert not (folder / "model.json").exists()
    for trial in trials():
        (file,) = folder.glob(f".automl/*/mine/trials/{trial['number']}/work/model.json")
        assert json.loads(file.read_text())["lr"] == trial["params"]["lr"]
