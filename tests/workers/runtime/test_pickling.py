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


HELPER = """
import functools
from beside import ONE

class Held:
    value = ONE

@functools.cache
def helper():
    return Held().value + 1

def run(trial):
    return helper()
"""
UNIMPORTABLE = """
import sys
sys.path.insert(0, "away")
{get}
sys.path.remove("away")
import beside, cloudpickle
from workers.runtime.pickling import pickle_objective

held = tool.Held()
def objective(trial):
    return [tool.helper(), held.value, beside.ONE]

pickle_objective({objective}, sys.stdout.buffer)
assert not cloudpickle.list_registry_pickle_by_value()
"""
LOAD_IT = """
import sys
from workers.runtime.pickling import read_objective
print(read_objective(sys.stdin.buffer)(None))
print([name for name in sys.modules if name in ("tool", "beside")])
"""


@pytest.mark.parametrize(
    "get",
    [
        "import tool",
        "import importlib.util as u; spec = u.spec_from_file_location('tool', 'away/tool.py'); "
        "tool = u.module_from_spec(spec); sys.modules['tool'] = tool; "
        "spec.loader.exec_module(tool)",
    ],
    ids=["folder no longer in sys.path", "loaded from a file"],
)
def test_modules_that_workers_cannot_import_go_with_the_objective(tmp_path: Path, get: str) -> None:
    (tmp_path / "away").mkdir()
    (tmp_path / "away" / "tool.py").write_text(HELPER)
    (tmp_path / "beside.py").write_text("ONE = 1")
    environment = {"PYTHONPATH": str(ROOT)}

    def loaded(objective: str) -> list[str]:
        script = UNIMPORTABLE.format(get=get, objective=objective)
        (tmp_path / "script.py").write_text(script)
        made = subprocess.run(
            [sys.executable, "script.py"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            check=True,
        )
        return (
            subprocess.run(
                [sys.executable, "-c", LOAD_IT],
                input=made.stdout,
                env=environment,
                stdout=subprocess.PIPE,
                check=True,
            )
            .stdout.decode()
            .splitlines()
        )

    assert loaded("objective") == ["[2, 1, 1]", "['beside']"]
    assert loaded("tool.run") == ["2", "[]"]


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
