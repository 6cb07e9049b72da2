"""Programs in a Python that reads a test's `sitecustomize.py` first, as all that it starts does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sources import ROOT

PROGRAM = "import sys; print('loss:', (float(sys.argv[1]) - 0.3) ** 2)"
CONFIG = """
name: line
goals: minimize loss
reports: {loss: 'loss: (\\S+)'}
space: {x: {low: -1.0, high: 1.0}}
budget: {trials: 4}
workers: 2
"""
COMMAND = ("--", sys.executable, "program.py", "{x}")  # to be tuned with line.yaml


def write(folder: Path, site: str, mine: str) -> None:
    """Write `sitecustomize.py`, the script `mine.py`, and a program with its configuration."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(site)
    (folder / "mine.py").write_text(mine)
    (folder / "program.py").write_text(PROGRAM)
    (folder / "line.yaml").write_text(CONFIG)


def run(folder: Path, *words: str, status: int = 0, **variables: str) -> str:
    """Run Python in that folder; both outputs."""
    paths = os.pathsep.join((str(folder / "site"), str(ROOT)))
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, "RAY_ADDRESS": "", **variables},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr
