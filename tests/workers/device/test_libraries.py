"""Seeds of libraries that a trial imports itself, and no torch for a trial that does not use it."""

from __future__ import annotations

import subprocess
import sys

from sources import ROOT

CODE = """
import sys
from workers.context import Context
from workers.protocol import Assignment
from workers.run import run

def plain(trial):
    return {"loss": 1.0}

def drawing(trial):
    import random
    import numpy
    import torch
    return {
        "random": random.random(),
        "numpy": numpy.random.rand(),
        "torch": torch.rand(1),
        "threads": torch.get_num_threads(),
    }

def failing(trial):
    raise RuntimeError("no memory of torch's")

def attempt(objective, seed=3):
    return run(Context(Assignment("s", 0, 1, {}, None, sys.argv[1], seed=seed)), objective)

assert attempt(plain).metrics == {"loss": 1.0}
assert attempt(failing).failure == "crashed"
assert "torch" not in sys.modules, "nothing needs it"
first = attempt(drawing).metrics
assert first["threads"] == 1
assert attempt(drawing).metrics == first, "the first import sets the same seeds"
other = attempt(drawing, seed=4).metrics
assert all(other[name] != first[name] for name in ("random", "numpy", "torch"))
"""


def test_a_trial_imports_torch_only_if_it_uses_it_and_draws_the_same(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
