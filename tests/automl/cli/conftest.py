"""A folder with a small configuration, and the program in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_sweeps import CONFIG, OBJECTIVE, ROOT, Start


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "toy.yaml").write_text(CONFIG)
    (tmp_path / "mine.py").write_text(OBJECTIVE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def process() -> Iterator[Start]:
    """Starts the program; a test that fails ends it."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **settings: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "automl", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **settings}
        started.append(
            subprocess.Popen(
                command, text=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        )
        return started[-1]

    yield start
    for running in started:
        running.kill()
        running.wait()
