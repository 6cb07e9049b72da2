"""An objective of a script reaches other processes with all that it calls."""

from __future__ import annotations

import functools
import io
import os
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from automl.errors import UsageError
from workers.runtime.pickling import read_objective, write_objective
from workers.runtime.script import Script

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
import sys
from workers.runtime.pickling import read_objective
objective = read_objective(sys.stdin.buffer.read()).objective
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

sys.stdout.buffer.write(pickle_objective({objective}))
assert not cloudpickle.list_registry_pickle_by_value()
"""
LOAD_IT = """
import sys
from workers.runtime.pickling import read_objective
print(read_objective(sys.stdin.buffer.read()).objective(None))
print([name for name in sys.modules if name in ("tool", "beside")])
"""


@pytest.mark.parametrize(
    "get",
    [
        "import tool",
        "import importlib.util as u; spec = u.spec_from_file_location('tool', 'away/tool.py'); "
        "tool = u.module_from_spec(spec); sys.modules['tool'] = tool; "
        "spec.loader.exec_module(tool)",
        "import types; tool = types.ModuleType('tool'); sys.modules['tool'] = tool; "
        "exec(open('away/tool.py').read(), vars(tool))",
    ],
    ids=["folder no longer in sys.path", "loaded from a file", "made from text"],
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


@pytest.mark.parametrize("make", [np.arange, torch.arange])
def test_a_large_array_is_written_without_a_copy(tmp_path: Path, make: Callable[..., Any]) -> None:
    array = make(8_000_000)  # 64 MB

    def objective(trial: object) -> float:
        return float(array[-1])

    with (tmp_path / "objective").open("wb") as file:
        tracemalloc.start()
        write_objective(objective, file)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < array.nbytes / 10
    content = (tmp_path / "objective").read_bytes()
    assert read_objective(content).objective(None) == 7_999_999.0


def test_what_an_objective_imports_is_known_before_it_is_called() -> None:
    def objective(trial: object) -> object:
        def fit() -> object:
            import sklearn.tree

            return sklearn.tree

        import no_such_module  # type: ignore[import-not-found]

        return fit(), no_such_module

    def careful(trial: object) -> object:
        os.environ["OMP_NUM_THREADS"] = "2"
        import sklearn.tree

        return sklearn.tree

    assert Script.of_this_process(objective).imports == ["sklearn.tree"]
    assert Script.of_this_process(careful).imports == [], "the variable counts at the import"


def test_a_traceback_names_the_file_of_the_objective() -> None:
    def objective(trial: object) -> object:
        return [part() for part in (lambda: 1 / 0,)]

    file = io.BytesIO()
    write_objective(objective, file)
    with pytest.raises(ZeroDivisionError) as caught:
        read_objective(file.getvalue()).objective(None)
    assert [entry.path for entry in caught.traceback[1:]] == [Path(__file__)] * len(
        caught.traceback[1:]
    )


class Holder:
    def __init__(self, held: object) -> None:
        self.held = {"deep": [held]}

    def run(self, trial: object) -> None:
        """An objective that is a method."""


def closure(held: object) -> Callable[[Any], Any]:
    def used(trial: object) -> object:
        return held

    return lambda trial: used(trial)


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (closure, "held"),
        (lambda held: functools.partial(closure(held)), "held"),
        (lambda held: Holder(held).run, "self.held['deep'][0]"),
    ],
)
@pytest.mark.parametrize(
    ("held", "kind"),
    [
        (threading.Lock(), "_thread.lock"),
        ((number for number in range(3)), "builtins.generator"),
        (open("/dev/null", "w"), "_io.TextIOWrapper"),  # noqa: SIM115
    ],
)
def test_what_cannot_travel_is_named(
    make: Callable[[object], Callable[[Any], Any]], place: str, held: object, kind: str
) -> None:
    with pytest.raises(UsageError) as caught:
        write_objective(make(held), io.BytesIO())
    assert f"its variable `{place}` is of type {kind}" in str(caught.value)
    assert 'dispatcher="inline"' in str(caught.value)
    assert caught.value.__suppress_context__, "Python prints one error, not a chain"
