"""A program with `trial.prepare` trains the same alone and as a command of a sweep."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_sweeps import automl

PROGRAM = """\
import torch
from torch import nn

from automl.client import trial

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = [torch.randn(8, 4) for _ in range(6)]
model, optimizer, loader = trial.prepare(model, optimizer, batches)
state = trial.restore()
if state:
    model.load_state_dict(state["model"])
for step, batch in enumerate(loader):
    loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
    trial.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item())
    if not trial.report(step, loss=loss):
        break
trial.save({"model": model.state_dict()})
"""
CONFIG = """\
name: program
goals: minimize loss at the end
space:
  accumulation: {choices: [1, 4], default: 1}
budget: {trials: 2}
suggester: sobol
"""


def alone(folder: Path, **environment: str) -> list[float]:
    """The losses that the program prints if nobody has started it."""
    code = [sys.executable, "train.py"]
    known = {"PYTHONPATH": os.pathsep.join(sys.path), **environment}
    done = subprocess.run(
        code, cwd=folder, env={**os.environ, **known}, capture_output=True, text=True, check=True
    )
    return [float(line.split()[1]) for line in done.stdout.splitlines()]


def test_alone_and_under_automl_it_computes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "mine.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    losses = alone(tmp_path)
    assert len(losses) == 6
    assert (tmp_path / "checkpoints").is_dir()
    again = alone(tmp_path, AUTOML_RESUME="1")
    assert again[0] < losses[0], "it goes on from what it has saved"

    run = ["sweep", "mine.yaml", "--dispatcher=inline", "--", sys.executable, "train.py"]
    done = automl(*run)
    assert done.exit_code == 0, done.output
    trials: list[dict[str, Any]] = json.loads(automl("trials", "program", "--json").stdout)
    assert {trial["params"]["accumulation"] for trial in trials} == {1, 4}
    found = [trial["metrics"]["loss"] for trial in trials]
    assert found == pytest.approx([losses[-1]] * 2, rel=1e-5)
