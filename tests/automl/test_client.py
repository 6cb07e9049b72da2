"""`automl/client.py`: a file to copy, which needs the standard library alone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import automl.client
from automl.client import checkpoint_dir, params, report, result, resumed


def test_outside_of_automl_it_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert report(1, loss=0.5)
    result(loss=0.5)
    assert checkpoint_dir() == Path()
    assert not resumed()
    assert params() == {}
    assert list(tmp_path.iterdir()) == []


def test_it_speaks_the_protocol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REPORTS", "STOP", "PARAMS"):
        monkeypatch.setenv(f"AUTOML_{name}", str(tmp_path / name))
    monkeypatch.setenv("AUTOML_CHECKPOINT_DIR", str(tmp_path))
    monkeypatch.setenv("AUTOML_RESUME", "1")
    (tmp_path / "PARAMS").write_text('{"lr": 0.1}')
    assert report(1, loss=0.5)
    (tmp_path / "STOP").touch()
    assert not report(2, loss=0.25)
    result(loss=0.125)
    lines = [json.loads(line) for line in (tmp_path / "REPORTS").read_text().splitlines()]
    assert lines == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}, {"loss": 0.125}]
    assert checkpoint_dir() == tmp_path
    assert resumed()
    assert params() == {"lr": 0.1}


def test_a_copy_needs_no_package(tmp_path: Path) -> None:
    shutil.copy(automl.client.__file__, tmp_path / "client.py")
    code = "import client, sys; client.report(1, loss=1); sys.exit('automl' in sys.modules)"
    assert subprocess.run([sys.executable, "-S", "-c", code], cwd=tmp_path).returncode == 0
