"""An objective of a script reaches other processes with all that it calls."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from automl.errors import UsageError
from workers.runtime.parent import pickle_objective, read_objective

ROOT = Path(__file__).parents[3]
SCRIPT = """
import functools, sys
from workers.runtime.parent import pickle_objective

@functools.lru_cache(maxsize=3, typed=True)
def count(number):
    return number and 1 + count(number - 1)

@functools.cache
def data():
    return 40

def objective(trial):
    return data() + count(2)

pickle_objective(objective, sys.stdout.buffer)
"""
LOAD = """
import sys
from workers.runtime.parent import read_objective
objective = read_objective(sys.stdin.buffer)
print(objective(None), objective.__globals__["data"].cache_info().hits)
objective(None)
print(objective.__globals__["data"].cache_info().hits)
"""


def test_cached_functions_of_a_script_go_with_its_objective(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {"PYTHONPATH": str(ROOT)}
    made = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE
    )
    loaded = subprocess.run(
        [sys.executable, "-c", LOAD],
        input=made.stdout,
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    assert loaded.stdout.split() == [b"42", b"0", b"1"]


def test_a_traceback_names_the_file_of_the_objective() -> None:
    def objective(trial: object) -> object:
        return [part() for part in (lambda: 1 / 0,)]

    file = io.BytesIO()
    pickle_objective(objective, file)
    file.seek(0)
    with pytest.raises(ZeroDivisionError) as caught:
        read_objective(file)(None)
    assert [entry.path for entry in caught.traceback[1:]] == [Path(__file__)] * len(
        caught.traceback[1:]
    )


def test_what_cannot_travel_is_one_clear_error() -> None:
    held = threading.Lock()

    def objective(trial: object) -> object:
        return held

    with pytest.raises(UsageError) as caught:
        pickle_objective(objective, io.BytesIO())
    assert "cannot be sent to workers: cannot pickle '_thread.lock' object" in str(caught.value)
    assert 'dispatcher="inline"' in str(caught.value)
    assert caught.value.__suppress_context__, "Python prints one error, not a chain"


SWEEP = """
import multiprocessing, pickle, random, sys
import automl
import numpy as np
import torch

np.random.seed(1)

class Net(torch.nn.Linear):
    pass

def square(x):
    return x * x

def objective(trial):
    drawn = (random.random(), np.random.random(), torch.rand(1).item())
    print("began with", sys.argv[1:])
    torch.save(Net(1, 1), "net.pt")
    seen = torch.load("net.pt", weights_only=False)
    assert type(seen) is Net
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.map(square, [3]) == [9]
    random.seed(trial.seed)
    np.random.seed(trial.seed % 2**32)
    torch.manual_seed(trial.seed)
    print("drew", drawn == (random.random(), np.random.random(), torch.rand(1).item()))
    return {"loss": trial.params["x"], "seed": trial.seed}

result = automl.sweep(objective, {"x": (0.0, 1.0)}, "minimize loss", trials=2, workers=1,
                      suggester="random", dispatcher="local", store="runs", progress=False)
print([trial.message for trial in result.trials], len({t.metrics["seed"] for t in result.trials}))
print(type(torch.load("net.pt", weights_only=False)) is Net)
"""


def test_a_trial_finds_the_script_as_in_its_own_process(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SWEEP)
    ran = subprocess.run(
        [sys.executable, "script.py", "--fast"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    log = next(tmp_path.glob("runs/sweeps/*/trials/0/logs/*.log")).read_text()
    lines = (ran.stdout + ran.stderr).splitlines()
    assert lines == ["['', ''] 2", "True"], "its classes pickle, its processes work"
    assert "began with ['--fast']" in log
    assert "its seed is " in log.splitlines()[0]
    assert "drew True" in log, "random, NumPy and torch were seeded with it"
