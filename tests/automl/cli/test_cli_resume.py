"""A sweep is resumed where it began, as it was run, by the line that was printed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from cli_sweeps import ROOT, automl, parsed, ran, refused

from automl import load
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
STORE = ("--store", "my runs")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.yaml").write_text(CONFIG)
    (tmp_path / "my program.py").write_text(PROGRAM)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def begun(folder: Path) -> Path:
    """A folder with a sweep of a command that was typed, which has run one trial."""
    ran("sweep", "mine.yaml", *STORE, "--dispatcher", "inline", *TRAIN)
    return folder


def num_trials(folder: Path) -> int:
    return len(load("mine", folder / "my runs").trials)


def test_the_line_works_if_it_is_pasted_and_runs_as_before(begun: Path) -> None:
    said = ran("resume", "mine", *STORE, *TRAIN).stderr
    line = said.partition("raise --trials or --budget: ")[2]
    pasted = line.replace("automl", f"{shell_line([sys.executable])} -m automl", 1)
    pasted = pasted.replace("--trials 10", "--trials 3")
    paths = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        pasted, shell=True, capture_output=True, text=True, env=paths, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert num_trials(begun) == 3
    spec = Ledger.open(begun / "my runs", readonly=True).spec("mine")
    assert spec.origin.dispatcher == "inline", "it was not typed again"


def test_a_command_is_refused_in_another_folder_and_another_one_may_go_on(
    begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = begun / "elsewhere"
    (elsewhere / "my program.py").write_text("raise SystemExit('another program')")
    monkeypatch.chdir(elsewhere)
    words = ("resume", "mine", "--store", str(begun / "my runs"), "--trials", "2")
    said = refused(*words, *TRAIN)
    assert f"began in the folder {begun}, and this is {elsewhere}" in said
    assert "--cwd . -- " in said
    assert num_trials(begun) == 1
    shutil.copy(begun / "my program.py", begun / "other.py")
    ran(*words, "--cwd", str(begun), *TRAIN[:3], "other.py", "{x}")
    assert num_trials(begun) == 2


NAMED = {
    "objective": "objective: mine.py:objective",
    "command": f"""command: ['{sys.executable}', -S, my program.py, '{{x}}']
reports: {{loss: 'loss (\\S+)'}}""",
}


@pytest.fixture(params=NAMED)
def named(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sweep that has run one trial; its configuration says what it runs, and where."""
    (folder / "mine.py").write_text("def objective(trial):\n    return trial.params['x']\n")
    text = CONFIG.replace("name: mine", f"name: own\ndispatcher: inline\n{NAMED[request.param]}")
    (folder / "own.yaml").write_text(text.rpartition("reports")[0])
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "settings"))
    ran("sweep", "own.yaml")
    return folder


def test_what_a_configuration_names_is_not_typed_again(named: Path) -> None:
    assert "automl resume own --trials" in ran("resume", "own").stderr
    assert parsed("resume", "own", "--trials", "2")["num_completed"] == 2
    assert Ledger.open(".automl", readonly=True).spec("own").origin.dispatcher == "inline"
    for file in (named / "mine.py", named / "my program.py"):
        file.write_text(file.read_text().replace("\n", "  # new\n"))
    changed = ran("resume", "own", "--trials", "3").stderr  # and again
    assert " has changed since trial 1: trials before and after are compared" in changed
    assert parsed("confirm", "own", "--seeds", "2", "--top", "2")["repeats"]
    typed = ("--name", "typed", "reports={loss: 'loss (.+)'}", *TRAIN)
    ran("sweep", "own.yaml", *typed)  # it goes before the named one
    more = ("resume", "typed", "--trials", "2")
    assert "a command that no configuration of yours has named; type it" in refused(*more)
    assert "{x} 7) has changed since trial 0" in ran(*more, *TRAIN, "7").stderr


def test_nothing_that_somebody_else_has_named_is_run(
    named: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Ledger.open(".automl")) as ledger:
        spec = ledger.spec("own")
        assert spec.origin.signed
        for changed in (
            {"command": "-- /bin/false", "objective": ""},
            {"objective": "other.py:objective", "command": ""},
            {"folder": str(named / "elsewhere")},
            {"command": "-- 'no end", "objective": "", "signed": "ü"},
            {"signed": 7},
        ):
            ledger.append("own", SpecChanged(spec.to_dict() | changed))
            said = automl("resume", "own", "--trials", "2")
            assert said.exit_code == 2, said.output
            assert isinstance(said.exception, SystemExit)
        ledger.append("own", SpecChanged(spec.to_dict()))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(named / "elsewhere"))
    found = refused("resume", "own", "--trials", "2")
    assert "name it with --objective" in found or "type it: " in found
    assert "mine.py:objective" in found or "'my program.py' {x}" in found
    ran("resume", "own", "--trials", "2", "--config", "own.yaml")


def test_a_configuration_has_one_of_objective_and_command(folder: Path) -> None:
    both = "\n".join(line for text in NAMED.values() for line in text.splitlines()[:1])
    (folder / "both.yaml").write_text(f"{both}\nworkload: translation\nspace: {{x: [1, 2]}}\n")
    said = refused("sweep", "both.yaml", "--dry-run")
    assert "both.yaml:1: objective: a configuration has one of objective and command" in said
    assert "both.yaml:3: workload: with a command a configuration has no workload" in said
    for words in ("[]", "[python, null]", "'a \"b'", "{a: 1}"):
        assert "command" in refused("sweep", "mine.yaml", "--dry-run", f"command={words}")
    (folder / "mine.py").touch()
    words = 'command=[python, -S, mine.py, "3", "{x}"]'
    done = parsed("sweep", "mine.yaml", "--dry-run", words)
    assert done["command"] == "-- python -S mine.py 3 {x}"
