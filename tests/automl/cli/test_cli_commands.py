"""`automl sweep CONFIG -- PROGRAM ARG ...`: any program as the trials of a sweep."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from cli_sweeps import Start, parsed, ran, refused, until

from automl import load

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


def trials() -> Any:
    return parsed("trials", "mine")


def sweep(*arguments: str, dispatcher: str = "inline") -> None:
    ran("sweep", "mine.yaml", "--dispatcher", dispatcher, *arguments)


@pytest.mark.parametrize("dispatcher", ["inline", "local"])
def test_a_script_is_tuned_without_a_changed_line(folder: Path, dispatcher: str) -> None:
    sweep(*TRAIN, dispatcher=dispatcher)
    found = trials()
    assert [trial["state"] for trial in found] == ["completed"] * 3
    for trial in found:
        assert trial["metrics"]["loss"] == pytest.approx(trial["params"]["x"] + 1 / 3, abs=1e-3)
    logs = ran("logs", "mine", "0").stdout
    assert "epoch 3 val_loss 1.233" in logs
    assert "--x=0.9" in logs


def test_no_epoch_of_a_paused_command_is_trained_twice(folder: Path) -> None:
    sweep(
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
    epochs = [line.split() for line in (folder / "epochs.txt").read_text().splitlines()]
    assert len({tuple(pair) for pair in epochs}) == len(epochs)
    for trial in trials():
        own = [int(epoch) for number, epoch in epochs if int(number) == trial["number"]]
        assert own == list(range(1, len(own) + 1))
    assert len(epochs) < 6 * 9
    assert any(trial["attempts"] > 1 for trial in trials())


def test_the_ledger_keeps_a_copy_that_is_never_run(folder: Path) -> None:
    sweep("budget.trials=1", *TRAIN)
    said = refused("resume", "mine", "--trials", "2")
    assert "sweep mine runs a command that no configuration of yours has named; type it: " in said
    assert f"automl resume mine --trials 2 -- {sys.executable} -S plain.py --x={{x}}" in said
    ran("resume", "mine", "--trials", "2", *TRAIN)
    assert len(trials()) == 2


def test_a_pattern_on_the_command_line(folder: Path) -> None:
    (folder / "mine.yaml").write_text(CONFIG.replace("reports:", "# reports:"))
    script = """echo '{{"step": 1, "acc": 0.5}}' >> $AUTOML_REPORTS; echo loss=$1"""
    line = ("sh", "-c", script, "sh", "{x}")
    sweep(r"reports.loss=loss=(\S+)", "--", *line)
    for trial in trials():
        assert (trial["metrics"]["loss"], trial["metrics"]["acc"]) == (trial["params"]["x"], 0.5)
    said = refused("resume", "mine", "--trials", "9")
    assert "automl resume mine --trials 9 -- sh -c 'echo" in said


def test_a_trial_may_have_a_folder_of_its_own(folder: Path) -> None:
    write = ("--", "sh", "-c", "echo $1 > model; echo epoch 1 val_loss $1", "sh", "{x}")
    sweep("cwd=trial", "workers=2", "budget.trials=2", *write, dispatcher="local")
    assert not (folder / "model").exists()
    for trial in trials():
        (file,) = folder.glob(f".automl/*/mine/trials/{trial['number']}/work/model")
        assert float(file.read_text()) == trial["params"]["x"]


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
        (["--objective", "plain.py:f"], "mine.yaml:8: reports: only a command has reports"),
    ],
)
def test_wrong_usage(folder: Path, arguments: list[str], words: str) -> None:
    assert words in refused("sweep", "mine.yaml", *arguments)
    assert not (folder / ".automl").exists()


def test_a_configuration_from_a_command_line_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "settings"))
    line = [*PYTHON, "plain.py", "--x", "0.2", "--kind", "none"]
    assert ran("init", "--", *line).stdout.endswith("run: automl sweep plain.yaml\n")
    assert "exists already" in refused("init", "--", *line)
    ran("sweep", "plain.yaml", "--dispatcher", "inline", "--trials", "1")
    ran("sweep", "plain.yaml", "--resume", "--trials", "2")  # nothing is typed again
    trial, _ = parsed("trials", "plain")
    assert trial["params"] == {"x": 0.2}
    assert trial["metrics"]["val_loss"] == pytest.approx(0.2 + 1 / 3, abs=1e-3)


LEAKS = """\
import sys, time
print(sys.argv)
for epoch in (1, 2):
    print(f"| end of epoch {epoch} | valid loss {2 / epoch}")
    print(f"| test loss {1 / epoch}")
"""


@pytest.mark.parametrize(
    ("program", "options", "printed", "said"),
    [
        (LEAKS, (), "goals: minimize valid_loss", "the goal is to minimize valid_loss: adapt"),
        ("open('was run', 'w')", ("--no-run",), "This is a guess", "wrote a guess"),
    ],
)
def test_init_proposes_validation(
    folder: Path, program: str, options: tuple[str, ...], printed: str, said: str
) -> None:
    (folder / "leaks.py").write_text(program)
    done = ran("init", *options, "-o", "-", "--", *PYTHON, "leaks.py", "--lr", "20")
    assert printed in done.stdout
    assert said in done.stderr
    assert not (folder / "was run").exists()
    fails = (*PYTHON, "-c", "print('no data'); raise SystemExit(3)", "--lr", "20")
    assert "exit status 3: no data. Mend it, or" in refused("init", "--", *fails, status=1)
    assert "command is a number that can be tuned" in refused("init", "--", "true")


# Kill -9 of a command, of its worker and of the controller: nothing is lost or left running.

SCRIPT = """\
import os, sys, time

state = os.path.join(os.environ["AUTOML_CHECKPOINT_DIR"], "epoch")
done = int(open(state).read()) if os.environ.get("AUTOML_RESUME") else 0
if os.fork() == 0:
    os.execvp("sleep", ["sleep", sys.argv[1]])
for epoch in range(done + 1, 4):
    print(f"epoch {epoch} loss {1 / epoch}", flush=True)
    open(state, "w").write(str(epoch))
    open(f"epoch-{epoch}", "a").write("x")
    if epoch == 2 and not done:
        open("ready", "w").close()
        time.sleep(1000)
"""
KILLED_CONFIG = r"""
goals: minimize loss
space: {x: {low: 0.0, high: 1.0, default: 0.5}}
budget: {trials: 1}
suggester: sobol
workers: 1
reports: {loss: 'loss (\S+)', step: 'epoch (\d+)'}
"""
MARK = f"9{os.getpid()}.5"
KILLED_LINE = ("--dispatcher", "local", "--", sys.executable, "-S", "script.py", MARK)


def running(*words: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = process.info["cmdline"] or []
        if all(word in line for word in words) and process.info["status"] != "zombie":
            found.append(process)
    return found


@pytest.mark.parametrize("victim", ["command", "worker", "controller"])
def test_a_kill_costs_no_epoch(
    victim: str, process: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "mine.yaml").write_text(KILLED_CONFIG)
    sweep = process("sweep", "mine.yaml", *KILLED_LINE)
    until((tmp_path / "ready").exists)
    until(lambda: len(running(MARK, "sleep")) == 1)
    until(lambda: len(load("mine").trials[0].reports) == 2)
    if victim == "controller":
        sweep.kill()
        until(lambda: running(MARK) == [])
        sweep = process("resume", "mine", *KILLED_LINE)
    else:
        begins = {"worker": "mine worker 0", "command": "-S"}[victim]
        for one in running(begins):
            if victim == "worker" or one.cmdline()[1:] == ["-S", "script.py", MARK]:
                one.kill()
    output, errors = sweep.communicate(timeout=60)
    assert sweep.returncode == 0, output + errors
    (trial,) = load("mine").trials
    assert (trial.state, trial.attempts) == ("completed", 2)
    assert [report.step for report in trial.reports] == [1, 2, 3]
    assert [(tmp_path / f"epoch-{n}").read_text() for n in (1, 2, 3)] == ["x", "x", "x"]
    until(lambda: running(MARK) == [])


# A command on two ranks: they meet as under torchrun, pause together and go on.

RANKS_TRAIN = """\
import os, pathlib, sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, state = dist.get_rank(), pathlib.Path(os.environ["AUTOML_CHECKPOINT_DIR"], "epoch")
done = int(state.read_text()) if os.environ.get("AUTOML_RESUME") else 0
for epoch in range(done + 1, 10):
    loss = torch.tensor([float(sys.argv[1]) + rank])
    dist.all_reduce(loss)
    if rank == 0:
        with open("epochs.txt", "a") as log:
            print(os.environ["AUTOML_TRIAL"], epoch, file=log)
        state.write_text(str(epoch))
        print(f"epoch {epoch} val_loss {loss.item() / 2 + 1 / epoch:.3f}")
    if epoch in (1, 3) and done < epoch:  # long enough for a decision
        time.sleep(0.5)
    stop = torch.tensor([os.path.exists(os.environ["AUTOML_STOP"])])
    dist.broadcast(stop, 0)
    if stop:
        print("rank", rank, "stops")
        break
dist.destroy_process_group()
"""
RANKS_CONFIG = r"""
name: mine
goals: minimize loss
space: {x: {low: 0.0, high: 1.0}}
budget: {trials: 3}
max_steps: 9
ranks: 2
workers: 2
suggester: sobol
stopper: {name: asha, grace: 1, factor: 3}
reports: {loss: 'val_loss (\S+)', step: 'epoch (\d+)'}
"""


def test_ranks_pause_together_and_train_no_epoch_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.yaml").write_text(RANKS_CONFIG)
    (tmp_path / "train.py").write_text(RANKS_TRAIN)
    monkeypatch.chdir(tmp_path)
    command = ("--", sys.executable, "train.py", "{x}")
    ran("sweep", "mine.yaml", "--dispatcher", "local", *command)
    trials = parsed("trials", "mine")
    assert {trial["state"] for trial in trials} <= {"completed", "paused", "stopped"}, trials
    epochs = [tuple(map(int, line.split())) for line in Path("epochs.txt").read_text().splitlines()]
    assert len(set(epochs)) == len(epochs) < 3 * 9
    for trial in trials:
        own = [epoch for number, epoch in epochs if number == trial["number"]]
        assert own == list(range(1, len(own) + 1))
        expected = trial["params"]["x"] + 0.5 + 1 / len(own)
        assert trial["metrics"]["loss"] == pytest.approx(expected, abs=1e-3)
    logs = [log.read_text() for log in Path(".automl").rglob("attempt-1-rank-*.log")]
    assert len(logs) == 2 * 3
    assert sum("rank 0 stops" in log for log in logs) > 0
    assert sum("rank 0 stops" in log for log in logs) == sum("rank 1 stops" in log for log in logs)
