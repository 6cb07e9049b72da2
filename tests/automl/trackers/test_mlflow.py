"""MLflow has a run for each trial, nested in that of the sweep, each report once."""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from writing import write_all

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))  # report_sweeps.py


import automl
from automl.ledger import Ledger
from automl.trackers.base import TrackedSweep

pytest.importorskip("mlflow", reason="install automl-sweep[mlflow]")

from mlflow.tracking import MlflowClient

from automl.trackers.mlflow import MlflowTracker


def objective(trial: Any) -> dict[str, float]:
    for step in (1, 2, 3):
        trial.report(step=step, **{"val@loss": trial.params["lr"] / step, "nan": float("nan")})
    return {"val@loss": 0.5}


@pytest.fixture
def address(empty_database: Path, tmp_path: Path) -> str:
    shutil.copy(empty_database, tmp_path)
    return f"sqlite:///{tmp_path}/mlflow.db"


def test_a_sweep_is_written_as_it_runs_and_written_again_adds_nothing(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    options: dict[str, Any] = {
        "suggester": "random",
        "dispatcher": "inline",
        "progress": False,
        "store": tmp_path / "store",
        "name": "seen",
        "trackers": ["mlflow"],
    }
    space = {"lr": (0.1, 1.0)}
    automl.sweep(objective, space, "minimize val@loss", trials=2, **options)
    result = automl.sweep(objective, space, "minimize val@loss", trials=3, resume=True, **options)

    client = MlflowClient(tracking_uri=address)
    experiment = client.get_experiment_by_name("automl").experiment_id

    def runs() -> dict[str, Any]:
        return {run.info.run_name: run for run in client.search_runs([experiment])}

    def curve(run: Any) -> list[int]:
        return [m.step for m in client.get_metric_history(run.info.run_id, "val_loss")]

    assert sorted(runs()) == ["seen", "trial 0", "trial 1", "trial 2"]
    assert len(client.search_runs([experiment])) == 4
    for trial in result.trials:
        run = runs()[f"trial {trial.number}"]
        assert run.data.params == {"lr": str(trial.params["lr"])}
        assert run.data.metrics["val_loss"] == 0.5
        assert (run.info.status, curve(run)) == ("FINISHED", [1, 2, 3, 3])
        assert abs(run.info.start_time / 1000 - time.time()) < 600
    snapshot = automl.load("seen", tmp_path / "store").snapshot
    with closing(Ledger.open(str(tmp_path / "store"), readonly=True)) as ledger:
        sweep = TrackedSweep.of(ledger, "seen")
    before = {name: curve(run) for name, run in runs().items()}
    write_all(MlflowTracker(), sweep, snapshot)
    assert {name: curve(run) for name, run in runs().items()} == before
