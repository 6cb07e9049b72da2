"""Scripts that need a Ray cluster of their own: each in a process that nothing of it outlives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

TESTS = Path(__file__).parents[2]


def told_by(script: str, folder: Path) -> Any:
    """What a script writes into `told.json` of the folder, which is its only argument."""
    places = (TESTS / "automl", TESTS / "workers", TESTS.parent)
    log = folder / "log"
    with log.open("w") as file:  # no pipe: Ray's processes would keep it open
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(folder)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))},
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        assert process.wait(480) == 0, log.read_text()[-4000:]
    finally:
        end_session(process.pid)
    return json.loads((folder / "told.json").read_text())


def end_session(session: int) -> None:
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session:
                process.kill()
        except (psutil.Error, OSError):
            continue
