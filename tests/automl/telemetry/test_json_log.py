"""Log lines as JSON."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweep_snapshots import FIRST, LATER

from automl.telemetry.json_log import json_log


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_each_change_of_a_trial_is_a_line() -> None:
    stream = io.StringIO()
    with json_log(stream) as show:
        show(FIRST)
        show(replace(FIRST, events=()))
        show(LATER)
    found = lines(stream.getvalue())
    trials = [(line["trial"], line["state"]) for line in found if line["event"] == "trial"]
    assert trials == [
        *((0, "running"), (1, "running")),
        *((1, "running"), (2, "running"), (0, "completed"), (1, "failed")),
    ]
    done = next(line for line in found if line.get("state") == "completed")
    assert done["value"] == 2.5
    assert done["sweep"] == "toy"
    assert done["time"].endswith("+00:00")
    failed = next(line for line in found if line.get("state") == "failed")
    assert failed["failure"] == "out_of_memory"


def test_warnings_and_errors_of_libraries_are_lines_too() -> None:
    stream = io.StringIO()
    with json_log(stream):
        logging.getLogger("some.library").warning("two\nlines: %s", "\x1b[31m")
        warnings.warn("careful", UserWarning, stacklevel=1)
        try:
            raise ValueError("wrong")
        except ValueError:
            logging.getLogger("other").exception("it failed")
    first, second, third = lines(stream.getvalue())
    assert first["event"] == "two\nlines: \x1b[31m"
    assert "\x1b" not in stream.getvalue()
    assert first["level"] == "warning"
    assert "careful" in second["event"]
    assert "ValueError: wrong" in third["traceback"]


def test_a_sweep_writes_nothing_else_to_standard_error(tmp_path: Path) -> None:
    (tmp_path / "toy.yaml").write_text(
        "name: toy\nspace:\n  x: {low: 0.0, high: 1.0, default: 0.5}\ngoals: minimize loss\n"
        "budget: {trials: 2}\nsuggester: random\n"
    )
    (tmp_path / "train.py").write_text("def objective(trial): return {'loss': trial.params['x']}\n")
    options = ["--objective", "train.py", "--dispatcher", "local", "--workers", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "automl", "sweep", "toy.yaml", *options, "--log-json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = lines(done.stderr)
    assert [line["state"] for line in found if line["event"] == "sweep"][-1] == "finished"
    assert {line["trial"] for line in found if line.get("state") == "completed"} == {0, 1}
    assert done.stdout == ""
