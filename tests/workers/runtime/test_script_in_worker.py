"""A trial in a worker finds the script as it would in the script's own process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = """
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


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """What a script prints, and the log of its first trial."""
    folder = tmp_path_factory.mktemp("script")
    (folder / "script.py").write_text(SCRIPT)
    ran = subprocess.run(
        [sys.executable, "script.py", "--fast"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    log = next(folder.glob("runs/sweeps/*/trials/0/logs/*.log")).read_text()
    return ran.stdout + ran.stderr, log


def test_its_classes_pickle_and_its_processes_work(done: tuple[str, str]) -> None:
    assert done[0].splitlines() == ["['', ''] 2", "True"]


def test_it_has_the_arguments_of_the_script(done: tuple[str, str]) -> None:
    assert "began with ['--fast']" in done[1]


def test_the_log_says_which_seed_a_trial_has(done: tuple[str, str]) -> None:
    seed = re.search(r"its seed is (\d+)", done[1].splitlines()[0])
    assert seed is not None
    assert "drew True" in done[1], "random, NumPy and torch were seeded with it"
