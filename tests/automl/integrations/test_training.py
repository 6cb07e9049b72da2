"""Callbacks in a program that automl runs as a command; checkpoints replace each other whole."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from automl.integrations.training import ProgramTrial


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a command's files."""
    (tmp_path / "kept").mkdir()
    monkeypatch.setenv("AUTOML_REPORTS", str(tmp_path / "reports.jsonl"))
    monkeypatch.setenv("AUTOML_STOP", str(tmp_path / "stop"))
    monkeypatch.setenv("AUTOML_CHECKPOINT_DIR", str(tmp_path / "kept"))
    monkeypatch.setenv("AUTOML_RESUME", "1")
    return tmp_path


def test_a_callback_in_a_command_reports_stops_and_resumes(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    xgboost = pytest.importorskip("xgboost")
    from automl.integrations.xgboost import XGBoostCallback

    x = np.linspace(0.0, 1.0, 50).reshape(-1, 1)
    data = xgboost.DMatrix(x, x[:, 0])

    def train() -> int:
        callback = XGBoostCallback(ProgramTrial())
        rounds, model = callback.rounds_left(5), callback.model
        given = {"evals": [(data, "train")], "verbose_eval": False, "xgb_model": model}
        made = xgboost.train({"nthread": 1}, data, rounds, callbacks=[callback], **given)
        return int(made.num_boosted_rounds())

    (program / "stop").touch()
    assert train() == 1
    (program / "stop").unlink()
    assert train() == 5
    lines = [json.loads(line) for line in (program / "reports.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5]
    assert all(line["train-rmse"] > 0 for line in lines)
