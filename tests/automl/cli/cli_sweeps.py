"""A small configuration with its objective, and functions that run `automl` on it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from automl.cli import cli
from automl.core.events import SweepEvent
from automl.core.spec import SweepSpec
from automl.ledger import Ledger

ROOT = Path(__file__).parents[3]
Start = Callable[..., subprocess.Popen[str]]
CONFIG = """\
name: toy
space:
  x: {low: 0.0, high: 1.0, default: 0.9}
  kind: {choices: [good, bad], default: good}
goals: minimize loss
suggester: sobol
budget: {trials: 4}
"""
OBJECTIVE = """\
import os, time

def objective(trial):
    if trial.params["kind"] == "bad":
        raise ValueError("a bad kind")
    for step in range(3):
        time.sleep(float(os.environ.get("PAUSE", "0")))
        trial.report(step=step, loss=trial.params["x"] + 1.0 / (step + 1))
    return {"loss": trial.params["x"], "double": 2 * trial.params["x"]}

not_callable = 3
"""
OWN = ("--objective", "mine.py:objective", "--dispatcher", "inline")


def automl(*arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(cli, list(arguments), **options)


def sweep(*arguments: str) -> Result:
    return automl("sweep", "toy.yaml", *OWN, *arguments)


def ran(*arguments: str) -> Result:
    """A run that must succeed."""
    found = automl(*arguments)
    assert found.exit_code == 0, found.output
    return found


def parsed(*arguments: str) -> Any:
    """The JSON of a run that must succeed."""
    text = ran(*arguments, "--json").stdout
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def refused(*arguments: str, status: int = 2) -> str:
    """What a run says that must be refused, without a traceback or an answer."""
    found = automl(*arguments)
    assert (found.exit_code, found.stdout) == (status, ""), found.output
    assert "Traceback" not in found.stderr
    return found.stderr


def recorded(folder: Path, spec: SweepSpec, events: list[SweepEvent]) -> str:
    """A store with a sweep of these events."""
    ledger = Ledger.open(folder, create=True)
    recorder = ledger.hold(ledger.create_sweep(spec))
    for event in events:
        recorder.state.apply(event)
    recorder.commit(2.0)
    ledger.close()
    return str(folder)


def until(condition: Callable[[], Any], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.05)
