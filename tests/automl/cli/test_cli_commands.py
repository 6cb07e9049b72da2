"""`automl sweep CONFIG -- PROGRAM ARG ...`: any program as the trials of a sweep."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_sweeps import automl

PLAIN = """\
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--x", type=float)
parser.add_argument("--kind", default="none")
arguments = parser.parse_args()
for epoch in range(1, 4):
    print(f"epoch {epoch} val_loss {arguments.x + 1 / epoch:.3f}")
"""
# The same with two more lines: it goes on where it was.
RESUMES = """\
import argparse
import os
import pathlib

parser = argparse.ArgumentParser()
parser.add_argument("--x", type=float)
arguments = parser.parse_args()
state = pathlib.Path(os.environ["AUTOML_CHECKPOINT_DIR"], "epoch")
done = int(state.read_text()) if os.environ.get("AUTOML_RESUME") else 0
for epoch in range(done + 1, 10):
    with open("epochs.txt", "a") as log:
        print(os.environ["AUTOML_TRIAL"], epoch, file=log)
    state.write_text(str(epoch))
    print(f"epoch {epoch} val_loss {arguments.x + 1 / epoch:.3f}", flush=True)
    stop = pathlib.Path(os.environ["AUTOML_STOP"])
    if stop.exists():
        break
    if epoch in (1, 3) and done < epoch:  # long enough for a decision
        import time
        time.sleep(0.3)
"""
CONFIG = r"""
name: mine
goals: minimize loss
space:
  x: {low: 0.0, high: 1.0, default: 0.9}
budget: {trials: 3}
suggester: sobol
reports: {loss: 'val_loss (\S+)', step: 'epoch (\d+)'}
"""
PYTHON = (sys.executable, "-S")
TRAIN = ("--", *PYTHON, "plain.py", "--x={x}")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.yaml").write_text(CONFIG)
    (tmp_path / "plain.py").write_text(PLAIN)
    (tmp_path / "resumes.py").write_text(RESUMES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trials(name: str = "mine") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(automl("trials", name, "--json").stdout)
    return found


def sweep(*arguments: str, dispatcher: str = "inline", config: str = "mine.yaml") -> Any:
    return automl("sweep", config, "--dispatcher", dispatcher, *arguments)


@pytest.mark.parametrize("dispatcher", ["inline", "local"])
def test_a_script_is_tuned_without_a_changed_line(folder: Path, dispatcher: str) -> None:
    done = sweep(*TRAIN, dispatcher=dispatcher)
    assert done.exit_code == 0, done.output
    found = trials()
    assert [trial["state"] for trial in found] == ["completed"] * 3
    for trial in found:
        assert trial["metrics"]["loss"] == pytest.approx(trial["params"]["x"] + 1 / 3, abs=1e-3)
    logs = automl("logs", "mine", "0").stdout
    assert "epoch 3 val_loss 1.233" in logs
    assert "--x=0.9" in logs


def test_no_epoch_of_a_paused_command_is_trained_twice(folder: Path) -> None:
    done = sweep(
        "stopper={name: asha, grace: 1, factor: 3}",
        "max_steps=9",
        "budget.trials=6",
        "workers=2",
        "--",
        *PYTHON,
        "resumes.py",
        "{params}",
        dispatcher="local",
    )
    assert done.exit_code == 0, done.output
    epochs = [line.split() for line in (folder / "epochs.txt").read_text().splitlines()]
    assert len({tuple(pair) for pair in epochs}) == len(epochs)
    for trial in trials():
        own = [int(epoch) for number, epoch in epochs if int(number) == trial["number"]]
        assert own == list(range(1, len(own) + 1))
    assert len(epochs) < 6 * 9
    assert any(trial["attempts"] > 1 for trial in trials())


def test_the_ledger_keeps_a_copy_that_is_never_run(folder: Path) -> None:
    assert sweep("budget.trials=1", *TRAIN).exit_code == 0
    refused = automl("resume", "mine", "--trials", "2")
    assert refused.exit_code == 2
    assert "sweep mine runs a command, which is never read from the store; type it: " in (
        refused.stderr
    )
    assert (
        f"automl resume mine --trials 2 -- {sys.executable} -S plain.py --x={{x}}" in refused.stderr
    )
    done = automl("resume", "mine", "--trials", "2", "--dispatcher", "inline", *TRAIN)
    assert done.exit_code == 0, done.output
    assert len(trials()) == 2


def test_a_pattern_on_the_command_line(folder: Path) -> None:
    (folder / "bare.yaml").write_text(CONFIG.replace("reports:", "# reports:"))
    script = """echo '{{"step": 1, "acc": 0.5}}' >> $AUTOML_REPORTS; echo loss=$1"""
    line = ("sh", "-c", script, "sh", "{x}")
    done = sweep(r"reports.loss=loss=(\S+)", "--", *line, config="bare.yaml")
    assert done.exit_code == 0, done.output
    assert [trial["metrics"]["loss"] for trial in trials()] == [
        trial["params"]["x"] for trial in trials()
    ]
    assert trials()[0]["metrics"]["acc"] == 0.5
    refused = automl("resume", "mine", "--trials", "9")
    assert "automl resume mine --trials 9 -- sh -c 'echo" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--", "python", "--y={y}"], "the argument '--y={y}' names no parameter: known: x"),
        (["--", "python", "{x"], "has no partner"),
        (["--", "python", "-u", "palin.py", "--x={x}"], "there is no script 'palin.py' in "),
        (["--", "no-such-program"], "there is no program 'no-such-program' that can be run"),
        (["--"], "a command is needed after --"),
        (["--objective", "a.py", "--", "true"], "--objective or a command after --: leave one"),
        (["reports.loss=(", "--", "true"], "reports.loss: the pattern of loss"),
        (["reports.acc=acc", "--", "true"], "has one group, which is the number"),
        (["workload=sentiment", "--", "true"], "with a command a configuration has no workload"),
        ([], "or a command after --"),
        (["--objective", "plain.py"], "mine.yaml:8: reports: only a command has reports"),
    ],
)
def test_wrong_usage(folder: Path, arguments: list[str], words: str) -> None:
    done = sweep(*arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert not (folder / ".automl").exists()


def test_a_configuration_from_a_command_line_alone(folder: Path) -> None:
    line = [*PYTHON, "plain.py", "--x", "0.2", "--kind", "none"]
    done = automl("init", "--", *line)
    assert done.exit_code == 0, done.output
    program = f"{sys.executable} -S plain.py --x {{x}} --kind none"
    words = f"automl sweep plain.yaml -- {program}"
    assert done.stdout.endswith(f"wrote plain.yaml; check it, then run: {words}\n")
    again = automl("init", "--", *line)
    assert again.exit_code == 2
    assert "exists already" in again.stderr
    typed = words.split()[1:]
    done = automl(*typed[:2], "--dispatcher", "inline", "--trials", "2", *typed[2:])
    assert done.exit_code == 0, done.output
    assert trials("plain")[0]["params"] == {"x": 0.2}
    assert trials("plain")[0]["metrics"]["val_loss"] == pytest.approx(0.2 + 1 / 3, abs=1e-3)


LEAKS = """\
import sys, time
print(sys.argv)
for epoch in (1, 2):
    print(f"| end of epoch {epoch} | valid loss {2 / epoch}")
    print(f"| test loss {1 / epoch}")
"""


def test_init_proposes_validation(folder: Path) -> None:
    (folder / "leaks.py").write_text(LEAKS)
    done = automl("init", "-o", "-", "--", *PYTHON, "leaks.py", "--lr", "20")
    assert "goals: minimize valid_loss" in done.stdout
    assert "the goal is to minimize valid_loss: adapt" in done.stderr
    (folder / "leaks.py").write_text("raise SystemExit(3)")
    done = automl("init", "-o", "-", "--", *PYTHON, "leaks.py", "--lr", "20")
    assert "This is a guess" in done.stdout
    assert "ended with exit status 3" in done.stderr
    (folder / "leaks.py").write_text("open('was run', 'w')")
    done = automl("init", "--no-run", "-o", "-", "--", *PYTHON, "leaks.py", "--lr", "20")
    assert "This is a guess" in done.stdout
    assert not (folder / "was run").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--", "true"], "no option of the command is a number that can be tuned"),
        (["--"], "a command is needed after --"),
    ],
)
def test_wrong_usage_of_init(folder: Path, arguments: list[str], words: str) -> None:
    done = automl("init", *arguments)
    assert done.exit_code == 2
    assert words in done.stderr
