"""A sweep is resumed where it began, as it was run, by the line that was printed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from cli_sweeps import automl

from automl.core import SpecChanged
from automl.core.text import shell_line
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


def test_another_command_may_go_on(folder: Path) -> None:
    (folder / "other.py").write_text(PROGRAM)
    other = (*TRAIN[:3], "other.py", "{x}")
    for command, number in ((TRAIN, "2"), (other, "3")):
        done = automl("resume", "mine", "--store", "my runs", "--trials", number, *command)
        assert done.exit_code == 0, done.output
    assert num_trials(folder) == 3


NAMED = {
    "objective": "objective: mine.py:objective",
    "command": f"""command: ['{sys.executable}', -S, my program.py, '{{x}}']
reports: {{loss: 'loss (\\S+)'}}""",
}


@pytest.fixture(params=NAMED)
def named(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A sweep that has run one trial; its configuration says what it runs, and where."""
    (folder / "mine.py").write_text("def objective(trial):\n    return trial.params['x']\n")
    text = CONFIG.replace("name: mine", f"name: own\ndispatcher: inline\n{NAMED[request.param]}")
    (folder / "own.yaml").write_text(text.rpartition("reports")[0])
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "settings"))
    done = automl("sweep", "own.yaml")
    assert done.exit_code == 0, done.output
    assert "automl resume own --trials" in automl("resume", "own").stderr
    return str(request.param)


def test_what_a_configuration_names_is_not_typed_again(named: str, folder: Path) -> None:
    done = automl("resume", "own", "--trials", "2", "--json")
    assert json.loads(done.stdout)["num_completed"] == 2
    assert Ledger.open(".automl", readonly=True).spec("own").dispatcher == "inline"
    assert automl("resume", "own", "--trials", "3").exit_code == 0, "and again"
    done = automl("confirm", "own", "--seeds", "2", "--top", "2", "--json")
    assert json.loads(done.stdout)["repeats"]


def test_nothing_that_somebody_else_has_named_is_run(
    named: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "elsewhere"))
    refused = automl("resume", "own", "--trials", "2")
    assert refused.exit_code == 2
    assert "name it with --objective" in refused.stderr or "type it: " in refused.stderr
    assert "mine.py:objective" in refused.stderr or "'my program.py' {x}" in refused.stderr
    assert automl("resume", "own", "--trials", "2", "--config", "own.yaml").exit_code == 0


def test_a_store_cannot_say_what_this_user_runs(named: str, folder: Path) -> None:
    with closing(Ledger.open(".automl")) as ledger:
        spec = ledger.spec("own")
        assert spec.signed
        for changed in (
            replace(spec, command="-- /bin/false", objective=""),
            replace(spec, objective="other.py:objective", command=""),
            replace(spec, folder=str(folder / "elsewhere")),
            replace(spec, command="-- 'no end", objective="", signed="ü"),
            replace(spec, signed=7),  # type: ignore[arg-type]
        ):
            ledger.append("own", SpecChanged(changed.to_dict()))
            refused = automl("resume", "own", "--trials", "2")
            assert refused.exit_code == 2, refused.output
            assert isinstance(refused.exception, SystemExit)


def test_a_typed_program_goes_before_the_named_one(named: str) -> None:
    done = automl("sweep", "own.yaml", "--name", "typed", "reports={loss: 'loss (.+)'}", *TRAIN)
    assert done.exit_code == 0, done.output
    refused = automl("resume", "typed", "--trials", "2")
    assert "a command, which is never read from the store; type it" in refused.stderr


def test_a_configuration_has_one_of_objective_and_command(folder: Path) -> None:
    both = "\n".join(line for text in NAMED.values() for line in text.splitlines()[:1])
    (folder / "both.yaml").write_text(f"{both}\nworkload: translation\nspace: {{x: [1, 2]}}\n")
    refused = automl("sweep", "both.yaml", "--dry-run")
    assert refused.exit_code == 2
    assert "both.yaml:1: objective: a configuration has one of objective and command" in (
        refused.stderr
    )
    assert "both.yaml:3: workload: with a command a configuration has no workload" in refused.stderr
    for words in ("[]", "[python, null]", "'a \"b'", "{a: 1}"):
        refused = automl("sweep", "mine.yaml", "--dry-run", f"command={words}")
        assert "command" in refused.stderr
        assert refused.exit_code == 2
    (folder / "mine.py").touch()
    done = automl(
        "sweep", "mine.yaml", "--dry-run", "--json", 'command=[python, -S, mine.py, "3", "{x}"]'
    )
    assert json.loads(done.stdout)["command"] == "-- python -S mine.py 3 {x}"
