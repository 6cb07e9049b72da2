"""A small configuration with its objective, and functions that run `automl` on it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from click.testing import CliRunner, Result

from automl.cli import cli

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


def automl(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


def sweep(*arguments: str) -> Result:
    return automl(
        "sweep",
        "toy.yaml",
        "--objective",
        "mine.py:objective",
        "--dispatcher",
        "inline",
        *arguments,
    )
