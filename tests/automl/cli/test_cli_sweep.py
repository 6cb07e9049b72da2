"""`automl sweep` and `resume`: a real small sweep to its end."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_sweeps import CONFIG, OWN, Start, parsed, ran, refused, sweep, until

from automl import AutomlError, load
from automl.core import Trial, TrialState


def trials(name: str = "toy") -> Any:
    return parsed("trials", name)


def test_a_sweep_runs_to_its_summary_and_its_name_is_in_use_then(folder: Path) -> None:
    done = ran("sweep", "toy.yaml", *OWN)
    found = trials()
    assert [trial["number"] for trial in found] == [0, 1, 2, 3]
    assert found[0]["params"] == {"x": 0.9, "kind": "good"}
    assert {trial["failure"] for trial in found} == {None, "crashed"}
    assert all(
        trial["state"] == "completed" for trial in found if trial["params"]["kind"] == "good"
    )
    assert found[0]["metrics"]["double"] == 1.8
    best = parsed("best", "toy")
    assert best["metrics"]["loss"] == min(t["metrics"].get("loss", 9.0) for t in found)
    for words in (
        "trial 0 completed  loss 0.9",
        "toy finished (its budget is used up): 4 trials",
        "The default: 0.9; the change is -",
        "automl trials toy",
    ):
        assert words in done.stdout
    again = ran("sweep", "toy.yaml", *OWN, "--trials", "1")
    assert "toy is in use: this sweep is toy-2" in again.stderr
    said = refused("sweep", "toy.yaml", *OWN, "--trials", "1", "--name", "toy")
    assert "--name: there is a sweep named 'toy' already" in said
    assert [info["name"] for info in parsed("list")] == ["toy", "toy-2"]


def test_a_sweep_in_which_every_trial_fails_ends_with_status_3(folder: Path) -> None:
    done = sweep("space.kind=[bad]", "--trials", "9")
    assert done.exit_code == 3
    assert "No trial has succeeded." in done.stdout
    assert "ValueError: a bad kind" in done.stdout
    assert len(trials()) == 3
    assert trials()[0]["message"] == "ValueError: a bad kind"
    assert 'raise ValueError("a bad kind")' in ran("logs", "toy", "1").stdout


def test_an_interrupted_sweep_ends_with_130_and_resumes(folder: Path, process: Start) -> None:
    (folder / "toy.yaml").write_text(
        CONFIG.replace("[good, bad]", "[good]").replace("trials: 4", "trials: 12")
    )
    running = process("sweep", "toy.yaml", *OWN, PAUSE="0.2")
    until(lambda: completed() or running.poll() is not None)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate()
    assert running.returncode == 130, err
    assert "automl resume toy --objective mine.py:objective" in out
    assert "Traceback" not in err
    before = completed()
    assert parsed("status", "toy")["state"] == "interrupted"
    assert len(trials()) < 12
    ran("resume", "toy", *OWN)
    assert [trial["number"] for trial in trials()] == list(range(12))
    after = completed()
    assert len(after) == 12
    assert [trial for trial in after if trial.number in {one.number for one in before}] == before


def completed() -> list[Trial]:
    """The trials of `toy` that are completed; none if there is no such sweep yet."""
    try:
        return [trial for trial in load("toy").trials if trial.state is TrialState.COMPLETED]
    except AutomlError:
        return []


def test_a_function_runs_with_what_stands_beside_its_file(folder: Path, process: Start) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "helper.py").write_text("def square(x):\n    return x * x\n")
    text = (
        "import helper\n\ndef f(trial):\n    print('hello')\n"
        "    return {'loss': helper.square(trial.params['x'])}\n"
    )
    (folder / "sub" / "mine.py").write_text(text)
    running = process(
        "sweep", "toy.yaml", "--objective", "sub/mine.py:f", "--trials", "2", "--workers", "1"
    )
    out, err = running.communicate()
    assert running.returncode == 0, err
    assert "toy finished (its budget is used up): 2 trials" in out
    assert trials()[0]["metrics"]["loss"] == pytest.approx(0.81)
    assert ran("logs", "toy", "0").stdout.endswith("hello\n")


ASKING = """
def objective(trial):
    if trial.suggest_categorical("kind", ["a", "b"]) == "a":
        return trial.suggest_float("x", 1e-6, 1.0, log=True)
    return trial.suggest_int("n", 1, 5)
"""


def test_a_function_without_a_configuration_declares_its_space(folder: Path) -> None:
    (folder / "asks.py").write_text(ASKING)
    options = ("--objective", "asks.py:objective", "--dispatcher", "inline")
    ran("sweep", *options, "--goals", "minimize value", "--trials", "7")
    assert {name for trial in trials("asks") for name in trial["params"]} == {"kind", "x", "n"}
    ran("resume", "asks", *options, "--trials", "9")
    assert len(trials("asks")) == 9
    ran("export", "asks", "-o", "out")
    declared = ("--trials", "3", "--name", "declared")
    ran("sweep", "out/space.yaml", *options, "suggester=random", *declared)
    assert {len(trial["params"]) for trial in trials("declared")} == {2}
    space = (folder / "out" / "space.yaml").read_text()
    assert '"n": {"low":1,"high":5,"when":{"kind":["b"]}}' in space
    refused("sweep", "--trials", "3")
    refused("sweep", *options, "--trials", "3")


# A wrong configuration or argument is refused before anything is created.


def wrong(folder: Path, *arguments: str) -> str:
    """The one clear message of a sweep that is refused; nothing is created."""
    said = refused("sweep", "toy.yaml", *OWN, *arguments)
    names = {path.name for path in folder.iterdir()} - {"__pycache__"}
    assert names == {"mine.py", "toy.yaml"}
    return said


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
        (CONFIG + "seed: no", "a whole number of at least 0 is needed, got 'no'"),
        (CONFIG + "workers: 1:30", "a whole number of at least 1 is needed, got '1:30'"),
        (CONFIG + "workers: 1000000000", "at most 10000 is needed, got 1000000000"),
        (CONFIG + "sead: 1", "did you mean 'seed'?"),
        (CONFIG + "method: bayes", "toy.yaml:8: method: unknown key; `suggester: bayes`"),
        (CONFIG.replace("low:", "min:"), "space.x.min: unknown key; `low` is the least value"),
        (CONFIG + "stopper: median-", "unknown stopper"),
        (CONFIG.replace("sobol", "bays"), "did you mean 'bayes'?"),
        (CONFIG.replace("minimize", "min"), "a goal is"),
        (CONFIG.replace("high: 1.0", "high: -1.0"), "low of 'x' must not be above high"),
        (CONFIG.replace("low: 0.0", "low: .nan"), "numbers must be finite, got .nan"),
        (CONFIG.replace("  x:", "  precison: auto\n  x:"), "unknown knob"),
        (
            CONFIG.replace("trials: 4", "trials: 0"),
            "budget.trials: a whole number of at least 1 is needed, got 0",
        ),
        (CONFIG.replace("name: toy", "name: ../toy"), "a name has 1 to 64"),
    ],
)
def test_a_malformed_configuration_is_refused(folder: Path, text: str, message: str) -> None:
    (folder / "toy.yaml").write_text(text)
    assert message in wrong(folder)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--trials", "0"],
            "--trials: budget.trials: a whole number of at least 1 is needed, got 0",
        ),
        (
            ["--trials", "ten"],
            "--trials: budget.trials: a whole number of at least 1 is needed, got 'ten'",
        ),
        (["--budget", "soon"], "--budget: budget.time: a duration is like 90s"),
        (["--workers", "-1"], "--workers: workers: a whole number of at least 1 is needed, got -1"),
        (["--name", "a/b"], "--name: name: a name has 1 to 64"),
        (["--name", "nmt\n"], "--name: name: a name has 1 to 64"),
        (["--seed", "x"], "--seed: seed: a whole number of at least 0 is needed"),
        (
            ["budget.trails=3"],
            "override 'budget.trails=3': budget.trails: unknown key; did you mean 'trials'?",
        ),
        (["trials"], "override 'trials': an override is KEY=VALUE"),
        (["--store", "toy.yaml/runs"], "toy.yaml is not a folder"),
        (["--store", "/proc/automl/runs"], "cannot be made in /proc"),
        (["--store", "postgresql://me:secret@host/db"], "PGPASSWORD"),
        (["--store", "nosuch://host/db"], "nosuch"),
        (["--objective", "mine.py:"], "--objective is FILE:NAME"),
        (["--objective", "absent.py:f"], "absent.py cannot be imported: FileNotFoundError"),
        (["--objective", "mine.py:objectiv"], "did you mean 'objective'?"),
        (["--objective", "mine.py:not_callable"], "defines no function 'not_callable'"),
        (["--objective", "toy.yaml:f"], "toy.yaml cannot be imported: SyntaxError"),
        (["--nmae", "x"], "No such option '--nmae'. Did you mean '--name'?"),
        (["--sampler", "tpe"], "No such option '--sampler'; `suggester="),
        (["--suggester", "tpe"], "No such option '--suggester'; write suggester=VALUE"),
    ],
)
def test_a_wrong_argument_is_refused(folder: Path, arguments: list[str], message: str) -> None:
    assert message in wrong(folder, *arguments)


def test_every_error_is_told_at_once(folder: Path) -> None:
    (folder / "toy.yaml").write_text(
        CONFIG.replace("sobol", "bays").replace("low: 0.0", "low: 2.0")
    )
    said = wrong(folder, "--trials", "0", "sed=1")
    for message in (
        "4 errors in toy.yaml:",
        "toy.yaml:3: space.x",
        "toy.yaml:6: suggester",
        "--trials: budget.trials",
        "override 'sed=1': sed",
    ):
        assert message in said


def test_a_file_that_cannot_be_imported_is_refused(folder: Path) -> None:
    (folder / "mine.py").write_text("import nothing_of_that_name\n")
    assert "mine.py cannot be imported: ModuleNotFoundError" in wrong(folder)


def test_the_program_itself_ends_with_status_2_no_traceback_and_without_torch(
    folder: Path,
) -> None:
    (folder / "toy.yaml").write_text(CONFIG.replace("high: 1.0", "high: -1.0"))
    program = f"import sys; sys.argv = ['automl', 'sweep', 'toy.yaml', *{OWN}]\n"
    program += "from automl.cli import main\n"
    program += "try: main()\nexcept SystemExit as end: print(end.code, 'torch' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.stdout == "2 False\n", ended.stderr
    assert ended.stderr.startswith("Error: ")
    assert "Traceback" not in ended.stderr
