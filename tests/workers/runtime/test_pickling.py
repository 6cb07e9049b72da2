"""An objective of a script reaches other processes with all that it calls."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from automl.errors import UsageError
from workers.runtime.pickling import pickle_objective, read_objective

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

def objective(trial):
    return data() + count(2)

pickle_objective(objective, sys.stdout.buffer)
"""
LOAD = """
import sys
from workers.runtime.pickling import read_objective
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
