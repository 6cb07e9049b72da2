"""A file of the user that has the name of one of our packages is named, with what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sources import ROOT

from automl.cli.objective import load_objective
from automl.errors import UsageError

CAPTURED: dict[str, Any] = {"capture_output": True, "text": True}


@pytest.mark.parametrize("name", ["workers.py", "search_spaces.py", "workers/__init__.py"])
def test_a_file_that_hides_a_package_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("")
    (tmp_path / "mine.py").write_text(
        f"import sys; sys.path.append({str(ROOT)!r})\nimport automl\nautoml.Optimizer\n"
    )
    done = subprocess.run([sys.executable, tmp_path / "mine.py"], capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    hiding = tmp_path / name.removesuffix("/__init__.py")
    package = name.removesuffix(".py").split("/")[0]
    assert last.startswith(f"ImportError: {hiding} hides the package {package!r}")
    assert "rename it" in last


@pytest.mark.parametrize("module", [["-m", "automl"], ["-mautoml"]])
def test_the_program_beside_such_a_file_ends_with_one_line(
    tmp_path: Path, module: list[str]
) -> None:
    (tmp_path / "workers.py").write_text("")
    (tmp_path / "paths.py").write_text(
        f"import os, sys\nos.environ['PYTHONPATH'] = {str(ROOT)!r}\n"
        f"os.execv(sys.executable, [sys.executable, *{module}, 'list'])\n"
    )
    done = subprocess.run(
        [sys.executable, "paths.py"], cwd=tmp_path, capture_output=True, text=True
    )
    hiding = tmp_path / "workers.py"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Error: {hiding} hides the package 'workers'")
    assert len(done.stderr.splitlines()) == 1


def test_one_beside_an_objective_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "workers.py").write_text("")
    (tmp_path / "mine.py").write_text("def objective(trial): return {}")
    with pytest.raises(UsageError, match=r"workers\.py hides the package 'workers'"):
        load_objective(f"{tmp_path / 'mine.py'}:objective")


def test_a_folder_that_is_no_package_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "workers").mkdir()
    (tmp_path / "mine.py").write_text("import automl\nprint(automl.UsageError)\n")
    done = subprocess.run([sys.executable, tmp_path / "mine.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_windows_is_refused_in_one_sentence(tmp_path: Path) -> None:
    code = f"import sys; sys.path.append({str(ROOT)!r}); sys.platform = 'win32'; import automl"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, **CAPTURED)
    assert done.stderr.splitlines()[-1] == (
        "ImportError: automl needs a system such as Linux: on Windows, install it inside of WSL"
    )
