"""The examples of commands give the same numbers in every language, in one go and paused."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from workers.command.command import CommandObjective
from workers.context import Context
from workers.protocol import Assignment, Outcome, Report
from workers.run import run

EXAMPLES = Path(__file__).parents[1] / "examples" / "commands"
PATTERNS = {"loss": r"val_loss (\S+)", "step": r"epoch (\d+)"}
PROGRAMS = {
    "train.py": (sys.executable, "-S", "train.py"),
    "train_resumable.py": (sys.executable, "train_resumable.py"),
    "train.sh": ("./train.sh",),
    "train.pl": ("perl", "train.pl"),
    "train.c": ("./train",),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    target = tmp_path / "commands"
    shutil.copytree(EXAMPLES, target)
    monkeypatch.chdir(target)
    return target


def program(name: str) -> Sequence[str]:
    words = PROGRAMS[name]
    tool = "cc" if name == "train.c" else words[0]
    if shutil.which(tool) is None:
        pytest.skip(f"this machine has no {tool}")
    if name == "train.c":
        subprocess.run(["cc", "-O2", "-Wall", "-Werror", "-o", "train", "train.c"], check=True)
    return words


def attempt(words: Sequence[str], number: int) -> tuple[Outcome, list[Report]]:
    params = {"lr": 0.25, "momentum": 0.5}
    folder = str(Path("trial").absolute())
    assignment = Assignment("s", 0, number, params, None, folder, resume=number > 1)
    reports: list[Report] = []
    context = Context(assignment, reports.append)
    command = CommandObjective((*words, "{params}"), reports=PATTERNS, goal="loss")
    return run(context, command), reports


def expected() -> list[float]:
    x, velocity, losses = 5.0, 0.0, list[float]()
    for _ in range(27):
        velocity = 0.5 * velocity - 0.25 * x
        x += velocity
        losses.append(x * x)
    return losses


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_language_gives_the_same(name: str, folder: Path) -> None:
    outcome, reports = attempt(program(name), 1)
    assert outcome.ending == "completed", outcome.message
    assert [report.step for report in reports] == list(range(1, 28))
    losses = [report.metrics["loss"] for report in reports]
    assert losses == pytest.approx(expected(), rel=1e-4, abs=1e-6)
