"""The memory of a trial's child processes counts, and libraries that it imports are seeded."""

from __future__ import annotations

import subprocess
import sys
import time

from sources import ROOT

MB = 2**20
FILL = "; kept[::4096] = b'x' * len(kept[::4096]); "
CHILD = f"import sys; kept = bytearray(80 * 2**20){FILL}sys.stdin.read()"


def test_memory_of_child_processes_counts(runner):
    before = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE)

    def objective(context):
        inner = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"
        outer = subprocess.Popen([sys.executable, "-c", inner], stdin=subprocess.PIPE)
        deadline = time.monotonic() + 60
        while context.memory.bytes() < 80 * MB and time.monotonic() < deadline:
            time.sleep(0.05)
        outer.communicate()
        return {"loss": 1.0}

    runner.objective = objective
    try:
        time.sleep(0.5)
        assert 80 * MB < runner().peak_memory_bytes < 130 * MB
    finally:
        before.kill()
        before.wait()


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
