"""Every script of benchmarks/ and tests/stress/ starts, and finds the project's modules."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted([*ROOT.glob("benchmarks/**/*.py"), *ROOT.glob("tests/stress/*.py")])
FILES = [file for file in FILES if ".envs" not in file.parts]
SCRIPTS = [file for file in FILES if '__name__ == "__main__"' in file.read_text()]
PROJECT = ("automl", "workers", "search_spaces", "benchmarks")


# Forks of one process, so that the large libraries are imported once.
HELP = """
import os, runpy, sys
import botorch, optuna, ray, sklearn.ensemble, torch
import automl, automl.optimizer, automl.sweeps, automl.suggesters.bayes
for script in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        sys.path.insert(0, os.path.dirname(script))
        sys.argv = [script, "--help"]
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as end:
            os._exit(end.code or 0)
        except BaseException as error:
            print(repr(error))
        os._exit(1)
    status = os.waitpid(child, 0)[1]
    if status:
        raise SystemExit(f"{script} ends with {os.waitstatus_to_exitcode(status)}")
"""


def test_every_script_shows_its_help_from_another_folder(tmp_path: Path) -> None:
    assert len(SCRIPTS) > 25
    command = [sys.executable, "-c", HELP, *map(str, SCRIPTS)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PROJECT:
            yield from ((str(node.module), alias.name) for alias in node.names)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_import_of_the_project_exists_even_inside_a_function(file: Path) -> None:
    for module, name in imported(ast.parse(file.read_text())):
        found = importlib.import_module(module)
        if not hasattr(found, name):
            importlib.import_module(f"{module}.{name}")
