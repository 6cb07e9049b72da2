"""The batch script of `automl launch slurm`, without a Slurm."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from automl.cli import cli
from automl.errors import UsageError
from automl.launch.slurm import flag_lines, script

CONFIG = """
name: toy
space:
  x: {low: -1.0, high: 1.0, default: 0.5}
goals: minimize loss
budget: {trials: 6}
suggester: random
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "toy.yaml").write_text(CONFIG)
    (tmp_path / "train.py").write_text("def objective(trial): return {'loss': 1.0}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def launched(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["launch", "slurm", "toy.yaml", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_flags_keep_their_values() -> None:
    assert flag_lines(["--constraint", "a b", "-A", "me", "--mem=0"]) == [
        "--constraint 'a b'",
        "-A me",
        "--mem=0",
    ]
    with pytest.raises(UsageError, match="options of sbatch"):
        flag_lines(["python", "train.py"])


OBJECTIVE = ("--objective", "train.py:objective")


def test_the_script_asks_slurm_for_what_was_typed(folder: Path) -> None:
    text = launched(
        *(*OBJECTIVE, "--nodes", "4", "--gpus-per-node", "8", "--time", "8:00:00"),
        *("--dry-run", "--", "--constraint=h100", "--account", "me"),
    )
    options = {line.removeprefix("#SBATCH ") for line in text.splitlines() if "#SBATCH" in line}
    assert options >= {
        "--nodes=4",
        "--ntasks-per-node=1",
        "--gpus-per-node=8",
        "--time=8:00:00",
        "--account me",
        "--constraint=h100",
        "--requeue",
        "--exclusive",
        "--signal=B:USR1@180",
        f"--chdir={folder}",
    }
    assert "--resume --name=toy --store=.automl --objective=train.py:objective" in text
    assert not (folder / ".automl").exists()


def test_the_script_is_bash_also_with_odd_names(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = folder / "a b'c"
    odd.mkdir()
    monkeypatch.chdir(odd)
    words = ["sweep", "a b'c/toy.yaml", "--resume", "--name=toy", "--store=s t"]
    text = script("toy", words, (), {"nodes": 1}, None, ("module() { :; }",), ())
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0
    said = subprocess.run(
        ["bash"],
        input=text.partition("\n# The first node")[0] + '\nprintf "%s\\n" "${sweep[@]}"\n',
        text=True,
        capture_output=True,
        check=True,
    )
    assert said.stdout.splitlines() == words


def test_without_slurm_the_error_says_what_to_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(folder))
    words = ["launch", "slurm", "toy.yaml", *OBJECTIVE, "--time", "1:00:00"]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 2
    assert "sbatch was not found" in done.output
