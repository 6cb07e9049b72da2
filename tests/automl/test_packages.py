"""A file of the user that has the name of one of our packages is named, with what to do."""

from __future__ import annotations

import os
import shutil
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


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder of installed packages with ours and another distribution named workers."""
    for name in ("automl", "search_spaces", "workers"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    other = tmp_path / "workers-0.1.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: workers\nVersion: 0.1\n")
    (other / "RECORD").write_text("workers/__init__.py,,\n")
    return tmp_path


def test_another_distribution_that_overwrote_a_package_is_named(installed: Path) -> None:
    (installed / "workers" / "__init__.py").write_text("def pool(): ...\n")
    run = {"env": {**os.environ, "PYTHONPATH": str(installed)}, "cwd": installed}
    done = subprocess.run([sys.executable, "-m", "automl", "list"], **run, **CAPTURED)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "Error: workers has overwritten the package 'workers' of automl-sweep in "
        f"{installed / 'workers'}; an environment can have one of them: `pip uninstall workers` "
        "and `pip install --force-reinstall --no-deps automl-sweep`\n"
    )


def test_one_that_overwrote_the_package_automl_itself_is_noticed_by_the_program(
    installed: Path,
) -> None:
    (installed / "automl" / "__init__.py").write_text("def predict(): ...\n")
    run = {"env": {**os.environ, "PYTHONPATH": str(installed)}, "cwd": installed}
    done = subprocess.run([sys.executable, "-m", "automl", "list"], **run, **CAPTURED)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: something has overwritten the package 'automl' of")
    assert len(done.stderr.splitlines()) == 1


def test_one_that_is_overwritten_by_ours_disturbs_nothing(installed: Path) -> None:
    run = {"env": {**os.environ, "PYTHONPATH": str(installed)}, "cwd": installed}
    done = subprocess.run([sys.executable, "-c", "import automl"], **run, **CAPTURED)
    assert (done.returncode, done.stderr) == (0, "")
