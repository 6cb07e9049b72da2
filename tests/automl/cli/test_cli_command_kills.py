"""Kill -9 of a command, of its worker and of the controller: nothing is lost or left running."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from cli_sweeps import Start

from automl import load

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
CONFIG = r"""
goals: minimize loss
space: {x: {low: 0.0, high: 1.0, default: 0.5}}
budget: {trials: 1}
suggester: sobol
workers: 1
reports: {loss: 'loss (\S+)', step: 'epoch (\d+)'}
"""
MARK = f"9{os.getpid()}.5"
LINE = ("--dispatcher", "local", "--", sys.executable, "-S", "script.py", MARK)


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


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
    (tmp_path / "mine.yaml").write_text(CONFIG)
    sweep = process("sweep", "mine.yaml", *LINE)
    until((tmp_path / "ready").exists)
    until(lambda: len(running(MARK, "sleep")) == 1)
    until(lambda: len(load("mine").trials[0].reports) == 2)
    if victim == "controller":
        sweep.kill()
        until(lambda: running(MARK) == [])
        sweep = process("resume", "mine", *LINE)
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
