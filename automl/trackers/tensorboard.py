"""TensorBoard logs: one run for each trial, in a folder of the sweep."""

import math
import os
from pathlib import Path
from typing import Any

from automl.core import Snapshot, Trial, TrialState

from .base import TrackedSweep, Tracker


class TensorBoardTracker(Tracker):
    """Writes `FOLDER/SWEEP/trial-NUMBER` for each trial.

    A run has the reports as scalars by step, the configuration and the values of the goals for the
    HParams page, peak memory in bytes, and the failure as text.

    Args:
        folder: for the folders of sweeps; None for the environment variable TENSORBOARD_LOGDIR, or
            else "runs".
    """

    name = "tensorboard"
    module = "tensorboard"

    def __init__(self, folder: str | Path | None = None) -> None:
        self._root = Path(folder or os.environ.get("TENSORBOARD_LOGDIR") or "runs").absolute()
        self._writers: dict[int, Any] = {}  # that are open
        self._num_reports: dict[int, int] = {}  # that a log has

    def open(self, sweep: TrackedSweep) -> None:
        """Make the folder."""
        self._folder = self._root / sweep.name
        self._folder.mkdir(parents=True, exist_ok=True)

    def write(self, trial: Trial, snapshot: Snapshot) -> None:
        """Add the new reports and, if the trial has ended, its results."""
        number = trial.number
        writer = self._writers.get(number) or self._begin(number)
        for point in trial.reports[self._num_reports[number] :]:
            for name, value in {**point.metrics, "seconds_of_training": point.seconds}.items():
                if math.isfinite(value):
                    writer.add_scalar(name, value, point.step)
        self._num_reports[number] = len(trial.reports)
        if trial.state.finished:
            self._end(writer, trial, snapshot)
        writer.flush()
        if trial.state is not TrialState.RUNNING:
            self._writers.pop(number).close()

    def close(self, snapshot: Snapshot) -> None:
        """Close the logs that are open."""
        while self._writers:
            self._writers.popitem()[1].close()

    def _begin(self, number: int) -> Any:
        from torch.utils.tensorboard import SummaryWriter

        folder = self._folder / f"trial-{number}"
        # What another process has written of the trial is written again, and hidden there.
        again = number not in self._num_reports and folder.exists()
        self._num_reports.setdefault(number, 0)
        return self._writers.setdefault(
            number, SummaryWriter(str(folder), purge_step=0 if again else None)
        )

    def _end(self, writer: Any, trial: Trial, snapshot: Snapshot) -> None:
        """Write the results of a trial."""
        writer.add_text("trial", f"**{trial.state}** {trial.failure or ''} {trial.message}")
        step = trial.reports[-1].step if trial.reports else 0
        if trial.peak_memory_bytes is not None:
            writer.add_scalar("memory_bytes/peak", trial.peak_memory_bytes, step)
        values = {
            f"goal/{goal.metric}": snapshot.value(trial, index)
            for index, goal in enumerate(snapshot.goals)
        }
        known = {name: value for name, value in values.items() if value is not None}
        params = {
            name: value if isinstance(value, bool | int | float | str) else str(value)
            for name, value in trial.params.items()
        }
        writer.add_hparams(params, known or {"goal/none": math.nan}, run_name=".")
