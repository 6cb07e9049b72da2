"""TensorBoard sees the curves of a sweep while it runs, each point once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from automl.core import Snapshot, Trial, TrialState
from automl.core.goals import Goal
from automl.core.trial import ReportLog, ReportPoint
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
