"""TensorBoard sees the curves of a sweep while it runs, each point once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import automl
from automl.core import Snapshot, Trial, TrialState
from automl.core.goals import Goal
from automl.core.reports import ReportLog, ReportPoint
from automl.trackers.base import TrackedSweep
from automl.trackers.tensorboard import TensorBoardTracker

pytestmark = pytest.mark.usefixtures("frozen_heap")


def read(folder: Path) -> EventAccumulator:
    found = EventAccumulator(str(folder))
    found.Reload()
    return found


def trial(reports: int, state: TrialState = TrialState.RUNNING) -> Trial:
    points = [ReportPoint(step, {"loss": 1.0 / step}, step) for step in range(1, reports + 1)]
    log = ReportLog(points)
    return Trial(0, {"x": 0.5}, state, points[-1].metrics, attempts=1, reports=log)


def write(tracker: TensorBoardTracker, one: Trial) -> None:
    tracker.write(one, Snapshot("toy", "running", [one], (Goal("loss"),)))


def next_second() -> None:
    """Wait: TensorBoard sorts the files of one second by the text of a count, 10 before 9."""
    time.sleep(1.01)


def steps(folder: Path) -> list[int]:
    return [event.step for event in read(folder).Scalars("loss")]


def test_points_come_one_by_one_and_a_process_that_goes_on_repeats_none(tmp_path: Path) -> None:
    sweep = TrackedSweep("toy", 0.0)
    folder = tmp_path / "toy" / "trial-0"
    first = TensorBoardTracker(tmp_path)
    first.open(sweep)
    for reports in (1, 2):
        write(first, trial(reports))
        assert steps(folder) == list(range(1, reports + 1))
    write(first, trial(3, TrialState.PAUSED))
    next_second()
    write(first, trial(4))
    assert steps(folder) == [1, 2, 3, 4]  # the first process is killed here

    next_second()
    second = TensorBoardTracker(tmp_path)
    second.open(sweep)
    write(second, trial(6, TrialState.COMPLETED))
    second.close(Snapshot("toy", "finished", [], (Goal("loss"),)))
    assert steps(folder) == [1, 2, 3, 4, 5, 6]
    assert "trial/text_summary" in read(folder).Tags()["tensors"]


def test_a_log_that_cannot_be_written_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.utils.tensorboard import SummaryWriter

    tracker = TensorBoardTracker(tmp_path)
    tracker.open(TrackedSweep("toy", 0.0))
    write(tracker, trial(2))
    with monkeypatch.context() as patched:
        patched.setattr(SummaryWriter, "flush", lambda writer: 1 / 0)  # such as a full disk
        with pytest.raises(ZeroDivisionError):
            write(tracker, trial(3))
    write(tracker, trial(4, TrialState.COMPLETED))
    assert steps(tmp_path / "toy" / "trial-0") == [1, 2, 3, 4]


def objective(trial: Any) -> None:
    for step in (1, 2):
        trial.report(step=step, loss=trial.params["x"])


def test_a_sweep_is_in_a_folder_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORBOARD_LOGDIR", str(tmp_path / "logs"))
    options: dict[str, Any] = {"suggester": "random", "dispatcher": "inline", "progress": False}
    automl.sweep(
        objective,
        {"x": (0.0, 1.0)},
        "minimize loss",
        trials=2,
        store=tmp_path / "store",
        name="seen",
        trackers="tensorboard",
        **options,
    )
    folders = sorted(path.name for path in (tmp_path / "logs" / "seen").iterdir())
    assert folders == ["trial-0", "trial-1"]
    assert steps(tmp_path / "logs" / "seen" / "trial-1") == [1, 2]
