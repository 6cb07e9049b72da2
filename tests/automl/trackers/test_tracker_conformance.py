"""The promises of every tracker of the folder: the suite that plugins run, too."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from automl.conformance.trackers import *  # noqa: F403
from automl.trackers import TRACKERS


@pytest.fixture(params=TRACKERS.names())
def name(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if find_spec(TRACKERS.get(request.param).module.partition(".")[0]) is None:
        pytest.skip(f"install automl-sweep[{request.param}]")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    if request.param == "mlflow":
        shutil.copy(request.getfixturevalue("empty_database"), tmp_path)
    return str(request.param)
