"""Every script of benchmarks/ and tests/stress/ starts, and finds the project's modules."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted([*ROOT.glob("benchmarks/**/*.py"), *ROOT.glob("tests/stress/*.py")])
FILES = [file for file in FILES if ".envs" not in file.parts]
SCRIPTS = [file for file in FILES if '__name__ == "__main__"' in file.read_text()]
PROJECT = ("automl", "workers", "search_spaces", "benchmarks")


@pytest.mark.timeout(600)
def test_every_script_shows_its_help_from_another_folder(tmp_path: Path) -> None:
    def shown(script: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(script), "--help"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    with ThreadPoolExecutor(2) as pool:
        for script, done in zip(SCRIPTS, pool.map(shown, SCRIPTS), strict=True):
            assert done.returncode == 0, f"{script}: {done.stderr[-2000:]}"
            assert "usage:" in done.stdout, script


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
