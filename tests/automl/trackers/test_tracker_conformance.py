"""What every tracker must hold."""

from __future__ import annotations

import logging
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from writing import write_all

import automl
from automl.core import Snapshot, Trial, TrialState
from automl.core.goals import Goal
from automl.core.trial import ReportLog, ReportPoint
from automl.trackers import TRACKERS
from automl.trackers.base import TrackedSweep, check_trackers
from search_spaces import Choice, Float, Space

SPACE = Space(Float("group.x", 0.0, 1.0, default=0.5), Choice("kind", [None, "a b/c", (1, 2)]))
SWEEP = TrackedSweep("conformance", 1.5)


@pytest.fixture(params=TRACKERS.names())
def name(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if find_spec(TRACKERS.get(request.param).module.partition(".")[0]) is None:
        pytest.skip(f"install automl-sweep[{request.param}]")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    if request.param == "mlflow":
        shutil.copy(request.getfixturevalue("empty_database"), tmp_path)
    return str(request.param)


def trial(number: int, state: TrialState, metrics: list[dict[str, float]]) -> Trial:
    """A trial that has begun, with these reports."""
    points = [ReportPoint(step, one, 0.1 * step) for step, one in enumerate(metrics, 1)]
    failure = "crashed" if state is TrialState.FAILED else None
    final = metrics[-1] if metrics else {}
    params = {"group.x": 0.25, "kind": (1, 2)}
    return Trial(number, params, state, final, failure, attempts=1, reports=ReportLog(points))


def snapshot(*trials: Trial) -> Snapshot:
    return Snapshot(SWEEP.name, "finished", trials, (Goal("loss"),))


def test_a_sweep_is_written_while_it_runs(name: str, caplog: pytest.LogCaptureFixture) -> None:
    assert check_trackers([name]) == (name,)

    def objective(trial: Any) -> float:
        if trial.number == 1:
            raise automl.TrialFailure("out_of_memory")
        trial.report(1, loss=trial.params["group.x"])
        return float(trial.params["group.x"])

    options: dict[str, Any] = {"suggester": "random", "dispatcher": "inline", "progress": False}
    with caplog.at_level(logging.WARNING, logger="automl"):
        automl.sweep(objective, SPACE, "minimize loss", trials=4, trackers=[name], **options)
    messages = [record.getMessage() for record in caplog.records]
    assert [one for one in messages if one.startswith((f"{name} fails", f"{name} lacks"))] == []


def test_a_trial_is_written_again_as_it_grows_and_by_another_process(name: str) -> None:
    values = [{"loss": 1.0 / step} for step in range(1, 5)]
    tracker = TRACKERS.get(name)()
    tracker.open(SWEEP)
    for count in (1, 2, 2):
        growing = trial(0, TrialState.RUNNING, values[:count])
        tracker.write(growing, snapshot(growing))
    ended = snapshot(trial(0, TrialState.COMPLETED, values))
    for _ in range(2):
        write_all(TRACKERS.get(name)(), SWEEP, ended)
