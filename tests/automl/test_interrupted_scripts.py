"""Ctrl-C in a script that runs a sweep."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = """
import time
import automl

def objective(trial):
    open(f"began{trial.number}", "w").close()
    for step in range(600):
        if not trial.report(step=step, loss=1.0):
            return None
        time.sleep(0.1)

automl.sweep(objective, {"x": (0.0, 1.0)}, "minimize loss", trials=3,
             dispatcher=%r, workers=1, progress=False, store="runs", **%r)
print("the next line")
"""
ROOT = Path(__file__).parents[2]


def interrupted(
    folder: Path, dispatcher: str, signals: int = 1, **options: str
) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(SCRIPT % (dispatcher, options))
    command = [sys.executable, "script.py"]
    paths = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = subprocess.Popen(
        command, cwd=folder, env=paths, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while not (folder / "began0").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    for _ in range(signals):
        running.send_signal(signal.SIGINT)
        time.sleep(0.1)
    out, err = running.communicate(timeout=60)
    return subprocess.CompletedProcess(command, running.returncode, out, err)


@pytest.mark.parametrize(("dispatcher", "signals"), [("local", 1), ("local", 4), ("inline", 1)])
def test_the_script_ends_and_says_how_it_goes_on(
    tmp_path: Path, dispatcher: str, signals: int
) -> None:
    """Also while a thread imports torch for `bayes`."""
    done = interrupted(tmp_path, dispatcher, signals)
    # By the signal; 1 if some other thread still ran code at exit: CPython then forgets the signal.
    assert done.returncode in (-signal.SIGINT, 1), done.stderr
    assert "Exception ignored" not in done.stderr
    assert "the next line" not in done.stdout
    last = done.stderr.strip().splitlines()[-1]
    assert "KeyboardInterrupt: the sweep 'sweep' is interrupted and can be resumed" in last
    assert "name='sweep' and resume=True" in last
