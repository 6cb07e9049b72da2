"""`automl sweep` and `resume`: what is refused before anything is created, and a real small sweep to its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from automl.cli import cli

ROOT = Path(__file__).parents[3]
Start = Callable[..., subprocess.Popen[str]]
CONFIG = """\
name: toy
space:
  x: {low: 0.0, high: 1.0, default: 0.9}
  kind: {choices: [good, bad], default: good}
goals: minimize loss
suggester: sobol
budget: {trials: 4}
"""
OBJECTIVE = """\
import os, time

def objective(trial):
    if trial.params["kind"] == "bad":
        raise ValueError("a bad kind")
    for step in range(3):
        time.sleep(float(os.environ.get("PAUSE", "0")))
        trial.report(step=step, loss=trial.params["x"] + 1.0 / (step + 1))
    return {"loss": trial.params["x"], "double": 2 * trial.params["x"]}

not_callable = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "toy.yaml").write_text(CONFIG)
    (tmp_path / "mine.py").write_text(OBJECTIVE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def automl(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


def sweep(*arguments: str) -> Result:
    return automl(
        "sweep",
        "toy.yaml",
        "--objective",
        "mine.py:objective",
        "--dispatcher",
        "inline",
        *arguments,
    )


@pytest.fixture
def process() -> Iterator[Start]:
    """Starts the program itself; what is left of it when a test fails is ended, and the Ray that it started with it."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **settings: str) -> subprocess.Popen[str]:
        # Ray's workers are nice by default: beside anything else they would hardly run.
        calm = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0"}
        command = [sys.executable, "-m", "automl", *arguments]
        environment = {**os.environ, **calm, **settings}
        started.append(
            subprocess.Popen(
                command, text=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        )
        return started[-1]

    yield start
    for running in started:
        if running.poll() is None:
            running.terminate()
            try:
                running.wait(timeout=30)
            except subprocess.TimeoutExpired:
                running.kill()


def trials(name: str = "toy") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(automl("trials", name, "--json").stdout)
    return found


def refused(done: Result, message: str, folder: Path) -> None:
    """Exit status 2, one clear message, no traceback, and nothing created."""
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in folder.iterdir() if path.name != "__pycache__") == [
        "mine.py",
        "toy.yaml",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the configuration is empty"),
        ("just words", "a configuration is a mapping"),
        ("- a\n- b\n", "a configuration is a mapping"),
        ("{", "not YAML"),
        ("name: [", "not YAML"),
        ("\tname: x", "not YAML"),
        ("name: x\nname: y", "this key is here twice"),
        ("name: &a x\nseed: *a", "aliases are not allowed"),
        ("name: !!python/name:os.system x", "tags are not allowed"),
        ("a: 1\n---\nb: 2", "one document is needed"),
        ("\x00", "not YAML"),
        ("[" * 3000, "levels deep"),
        ("a: " + "9" * 70000, "at most 65536 bytes"),
        (CONFIG + "seed: .nan", "numbers must be finite"),
        (CONFIG + "seed: 010", "leading zero"),
        (CONFIG + "seed: no", "a whole number is needed, got 'no'"),
        (CONFIG + "workers: 1:30", "a whole number is needed, got '1:30'"),
        (CONFIG + "sead: 1", "did you mean 'seed'?"),
        (CONFIG + "stopper: median-", "unknown stopper"),
        (CONFIG.replace("sobol", "bays"), "did you mean 'bayes'?"),
        (CONFIG.replace("minimize", "min"), "a goal is"),
        (CONFIG.replace("high: 1.0", "high: -1.0"), "low of 'x' must not be above high"),
        (CONFIG.replace("low: 0.0", "low: .nan"), "numbers must be finite, got .nan"),
        (CONFIG.replace("  x:", "  precison: auto\n  x:"), "unknown knob"),
        (CONFIG.replace("trials: 4", "trials: 0"), "budget.trials: 1 or more is needed, got 0"),
        (CONFIG.replace("name: toy", "name: ../toy"), "a name has 1 to 64"),
    ],
)
def test_a_malformed_configuration_is_refused(folder: Path, text: str, message: str) -> None:
    (folder / "toy.yaml").write_text(text)
    refused(sweep(), message, folder)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trials", "0"], "--trials: budget.trials: 1 or more is needed, got 0"),
        (["--trials", "ten"], "--trials: budget.trials: a whole number is needed, got 'ten'"),
        (["--budget", "soon"], "--budget: budget.time: a duration is like 90s"),
        (["--workers", "-1"], "--workers: workers: 1 or more is needed, got -1"),
        (["--name", "a/b"], "--name: name: a name has 1 to 64"),
        (["--name", "nmt\n"], "--name: name: a name has 1 to 64"),
        (["--seed", "x"], "--seed: seed: a whole number is needed"),
        (
            ["budget.trails=3"],
            "override 'budget.trails=3': budget.trails: unknown key; did you mean 'trials'?",
        ),
        (["trials"], "override 'trials': an override is KEY=VALUE"),
        (["--store", "toy.yaml/runs"], "toy.yaml is not a folder"),
        (["--store", "/proc/automl/runs"], "cannot be made in /proc"),
        (["--store", "postgresql://me:secret@host/db"], "PGPASSWORD"),
        (["--store", "nosuch://host/db"], "nosuch"),
        (["--objective", "mine.py"], "--objective is FILE:NAME"),
        (["--objective", "absent.py:f"], "there is no file 'absent.py'"),
        (["--objective", "mine.py:objectiv"], "did you mean 'objective'?"),
        (["--objective", "mine.py:not_callable"], "is no function, it is of type int"),
        (["--objective", "toy.yaml:f"], "is no Python file"),
        (["--nmae", "x"], "No such option"),
    ],
)
def test_a_wrong_argument_is_refused(folder: Path, arguments: list[str], message: str) -> None:
    refused(sweep(*arguments), message, folder)


def test_every_error_is_told_at_once(folder: Path) -> None:
    (folder / "toy.yaml").write_text(
        CONFIG.replace("sobol", "bays").replace("low: 0.0", "low: 2.0")
    )
    done = sweep("--trials", "0", "sed=1")
    refused(done, "4 errors in toy.yaml:", folder)
    for message in (
        "toy.yaml:3: space.x",
        "toy.yaml:6: suggester",
        "--trials: budget.trials",
        "override 'sed=1': sed",
    ):
        assert message in done.stderr


def test_a_file_that_cannot_be_imported_is_refused(folder: Path) -> None:
    (folder / "mine.py").write_text("import nothing_of_that_name\n")
    refused(sweep(), "mine.py cannot be imported: ModuleNotFoundError", folder)


@pytest.mark.parametrize(
    "arguments", [["absent.yaml"], ["."], ["toy.yaml", "seed=.inf"], ["toy.yaml", "--seed", "-1"]]
)
def test_the_program_itself_ends_with_status_2_and_no_traceback(
    folder: Path, process: Start, arguments: list[str]
) -> None:
    running = process("sweep", *arguments, "--objective", "mine.py:objective")
    out, err = running.communicate()
    assert (running.returncode, out) == (2, "")
    assert err.startswith("Error: ")
    assert "Traceback" not in err
    assert sorted(path.name for path in folder.iterdir()) == ["mine.py", "toy.yaml"]


def test_a_dry_run_shows_what_would_run_and_creates_nothing(folder: Path) -> None:
    done = sweep("--dry-run", "--trials", "7")
    assert done.exit_code == 0
    assert "0 to 1" in done.stdout
    assert "budget: trials 7" in done.stdout
    assert "nothing was created" in done.stdout
    assert sorted(path.name for path in folder.iterdir() if path.name != "__pycache__") == [
        "mine.py",
        "toy.yaml",
    ]


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
        "toy finished: 4 trials",
        "against the default (0.9)",
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
    done = sweep("space.kind=[bad]", "--trials", "2")
    assert done.exit_code == 3
    assert "No trial has succeeded." in done.stdout
    assert "ValueError: a bad kind" in done.stdout


def test_a_finished_sweep_goes_on_with_a_larger_budget(folder: Path) -> None:
    assert sweep("--trials", "1", "space.kind=[good]").exit_code == 0
    first = trials()
    arguments = ["resume", "toy", "--objective", "mine.py:objective", "--dispatcher", "inline"]
    assert "is finished; to continue" in automl(*arguments).stderr
    assert automl(*arguments, "--trials", "0").exit_code == 2
    done = automl(*arguments, "--trials", "3")
    assert done.exit_code == 0, done.output
    assert len(trials()) == 3
    assert trials()[0] == first[0]


def test_an_objective_must_be_named_again_to_resume(folder: Path) -> None:
    assert sweep("--trials", "1", "space.kind=[good]").exit_code == 0
    done = automl("resume", "toy", "--trials", "2")
    assert done.exit_code == 2
    assert "name it with --objective FILE:NAME" in done.stderr


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
    assert "automl resume toy" in out
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


@pytest.mark.timeout(
    600
)  # Ray takes ten seconds to start, and minutes on a machine that does much else
def test_a_function_runs_on_ray_with_what_stands_beside_its_file(
    folder: Path, process: Start
) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "helper.py").write_text("def square(x):\n    return x * x\n")
    text = "import helper\n\ndef f(trial):\n    print('hello')\n    return {'loss': helper.square(trial.params['x'])}\n"
    (folder / "sub" / "mine.py").write_text(text)
    running = process(
        "sweep", "toy.yaml", "--objective", "sub/mine.py:f", "--trials", "2", "--workers", "1"
    )
    out, err = running.communicate()
    assert running.returncode == 0, err
    assert "toy finished: 2 trials" in out
    assert trials()[0]["metrics"]["loss"] == pytest.approx(0.81)
    assert automl("logs", "toy", "0").stdout.endswith("hello\n")


def test_a_file_that_begins_a_sweep_itself_is_no_objective(folder: Path) -> None:
    text = (
        "import automl\nfrom search_spaces import *\n\ndef f(trial):\n    return {'loss': 1.0}\n\n"
    )
    (folder / "mine.py").write_text(
        text + "automl.sweep(f, Space(Float('x', 0.0, 1.0)), 'minimize loss', trials=1)\n"
    )
    done = automl("sweep", "toy.yaml", "--objective", "mine.py:f", "--dispatcher", "inline")
    assert (done.exit_code, "put that under if __name__" in done.stderr) == (2, True)
    assert not (folder / ".automl").exists()


def test_a_sweep_tells_a_program_how_it_ended(folder: Path) -> None:
    (folder / "mine.py").write_text("def f(trial):\n    return {'loss': trial.params['x'] ** 2}\n")
    run = [
        "sweep",
        "toy.yaml",
        "--objective",
        "mine.py:f",
        "--dispatcher",
        "inline",
        "--trials",
        "2",
        "--json",
    ]
    planned = automl(*run, "--dry-run")
    assert (planned.exit_code, json.loads(planned.stdout)["name"]) == (0, "toy")
    done = automl(*run)
    assert done.exit_code == 0, done.stderr
    assert {key: json.loads(done.stdout)[key] for key in ("sweep", "state", "num_completed")} == {
        "sweep": "toy",
        "state": "finished",
        "num_completed": 2,
    }


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
