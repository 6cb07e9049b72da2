"""An objective of a script reaches other processes with all that it calls."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
SCRIPT = """
import functools, sys
from workers.runtime.pickling import pickle_objective

@functools.lru_cache(maxsize=3, typed=True)
def count(number):
    return number and 1 + count(number - 1)

@functools.cache
def data():
    return 40

class Holder:
    @functools.cached_property
    def two(self):
        return count(2)

def objective(trial):
    return data() + Holder().two

sys.stdout.buffer.write(pickle_objective(objective))
"""
LOAD = """
import cloudpickle, sys
objective = cloudpickle.loads(sys.stdin.buffer.read())
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
