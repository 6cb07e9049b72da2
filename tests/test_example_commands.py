"""The examples of commands give the same numbers in every language."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from workers.command.command import CommandObjective
from workers.context import Context
from workers.protocol import Assignment, Report
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


def losses() -> list[float]:
    """Of gradient descent with momentum on a parabola."""
    x, velocity, found = 5.0, 0.0, list[float]()
    for _ in range(27):
        velocity = 0.5 * velocity - 0.25 * x
        x += velocity
        found.append(x * x)
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_language_gives_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shutil.copytree(EXAMPLES, tmp_path / "commands"))
    words = PROGRAMS[name]
    tool = "cc" if name == "train.c" else words[0]
    if shutil.which(tool) is None:
        pytest.skip(f"this machine has no {tool}")
    if name == "train.c":
        subprocess.run(["cc", "-O2", "-Wall", "-Werror", "-o", "train", "train.c"], check=True)
    params, reports = {"lr": 0.25, "momentum": 0.5}, list[Report]()
    assignment = Assignment("s", 0, 1, params, None, str(Path("trial").absolute()))
    command = CommandObjective((*words, "{params}"), reports=PATTERNS, goal="loss")
    outcome = run(Context(assignment, reports.append), command)
    assert outcome.ending == "completed", outcome.message
    assert [report.step for report in reports] == list(range(1, 28))
    found = [report.metrics["loss"] for report in reports]
    assert found == pytest.approx(losses(), rel=1e-4, abs=1e-6)
