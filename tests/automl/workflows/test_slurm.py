"""The batch script of `automl launch slurm`, without Slurm, and what a job asks on its nodes."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from automl.cli import cli
from automl.errors import UsageError
from automl.workflows.slurm import flag_lines, free_port, script, wait_for_nodes

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


def test_flags_keep_their_values() -> None:
    assert flag_lines(["--constraint", "a b", "-A", "me", "--mem=0"]) == [
        "--constraint 'a b'",
        "-A me",
        "--mem=0",
    ]
    with pytest.raises(UsageError, match="options of sbatch"):
        flag_lines(["python", "train.py"])


def test_the_script_asks_slurm_for_what_was_typed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [
        "launch",
        "slurm",
        "toy.yaml",
        "--objective",
        "train.py:objective",
        "--time",
        "8:00:00",
    ]
    more = ["--nodes", "4", "--gpus-per-node", "8", "--dry-run"]
    done = CliRunner().invoke(cli, [*words, *more, "--", "--constraint=h100", "--account", "me"])
    assert done.exit_code == 0, done.output
    options = {line.removeprefix("#SBATCH ") for line in done.stdout.splitlines()}
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
    assert "--resume --name=toy --store=.automl --objective=train.py:objective" in done.stdout
    assert not (folder / ".automl").exists()
    monkeypatch.setenv("PATH", str(folder))
    done = CliRunner().invoke(cli, words)
    assert (done.exit_code, "sbatch was not found" in done.output) == (2, True)


def test_the_script_is_bash_also_with_odd_names(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a b'c").mkdir()
    monkeypatch.chdir(folder / "a b'c")
    words = ["sweep", "a b'c/toy.yaml", "--resume", "--name=toy", "--store=s t"]
    text = script("toy", words, (), {"nodes": 1}, None, ("module() { :; }",), ())
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0
    shows = text.partition("\n# The first node")[0] + '\nprintf "%s\\n" "${sweep[@]}"\n'
    said = subprocess.run(["bash"], input=shows, text=True, capture_output=True, check=True)
    assert said.stdout.splitlines() == words


def test_a_head_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(UsageError, match="Ray's head does not answer"):
        wait_for_nodes(f"127.0.0.1:{free_port('127.0.0.1')}", 1, 0.0)


def test_the_program_waits_for_nodes_and_goes_on_with_fewer() -> None:
    """A Ray head of one node, of which two are wanted."""
    port = free_port("127.0.0.1")
    folder = tempfile.mkdtemp(prefix="nodes-", dir="/tmp")  # Ray's sockets need a short path
    own = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "RAY_TMPDIR": folder}
    python, log = [sys.executable, "-m"], Path(folder, "head.log")
    head = [*python, "ray.scripts.scripts", "start", "--head", "--block", f"--port={port}"]
    head += ["--node-ip-address=127.0.0.1", "--num-cpus=1", "--include-dashboard=false"]

    def waited(nodes: int, seconds: int) -> str:
        words = [*python, "automl.workflows.slurm", "wait", f"127.0.0.1:{port}"]
        words += [f"--nodes={nodes}", f"--seconds={seconds}"]
        done = subprocess.run(words, env=os.environ | own, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr + log.read_text()
        return done.stdout

    with log.open("w") as file:
        running = subprocess.Popen(
            head, env=os.environ | own, stdout=file, stderr=subprocess.STDOUT
        )
        try:
            assert f"1 of 1 nodes have joined Ray at 127.0.0.1:{port}" in waited(1, 200)
            assert "1 of 2 nodes" in waited(2, 1)
        finally:
            running.terminate()
            running.wait(60)
            shutil.rmtree(folder, ignore_errors=True)
