"""TensorBoard logs: one run for each trial, in a folder of the sweep."""

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automl.core import Snapshot, Trial, TrialState, text
from workers.device.profiling import FOLDER
from workers.files.folder import Folder
from workers.protocol import Params

from .base import TrackedSweep, Tracker


@dataclass
class _Log:
    """The log of a trial: its writer, None while it is closed, and how many reports it has."""

    writer: Any = None
    num_reports: int = 0


class TensorBoardTracker(Tracker):
    """Writes `FOLDER/SWEEP/trial-NUMBER` for each trial.

    A run has the reports as scalars by step (and `seconds_of_training`), the configuration and
    final metrics for the HParams page, memory in bytes (the peak, and by module), and the traces of
    torch's profiler, which TensorBoard's profiler plugin and Perfetto open.

    Args:
        folder: for the folders of sweeps; None for the environment variable TENSORBOARD_LOGDIR, or
            else "runs".
    """

    name = "tensorboard"
    module = "tensorboard"

    def __init__(self, folder: str | Path | None = None) -> None:
        self._root = Path(folder or os.environ.get("TENSORBOARD_LOGDIR") or "runs").absolute()
        self._logs: dict[int, _Log] = {}
        self.place = str(self._root)

    def open(self, sweep: TrackedSweep) -> None:
        """Make the folder."""
        self._folder = self._root / sweep.name
        self.place = str(self._folder)
        self._files = sweep.files
        self._folder.mkdir(parents=True, exist_ok=True)

    def write(self, trial: Trial, snapshot: Snapshot) -> None:
        """Add the new reports and, if the trial has ended, its results."""
        log = self._logs.setdefault(trial.number, _Log())
        try:
            self._write(log, trial, snapshot)
        except Exception:
            del self._logs[trial.number]  # its writer is broken for good: begin the log again
            raise

    def _write(self, log: _Log, trial: Trial, snapshot: Snapshot) -> None:
        writer = self._writer(log, self._folder / f"trial-{trial.number}")
        for point in trial.reports[log.num_reports :]:
            scalars = {**point.metrics, "seconds_of_training": point.seconds}
            for name, value in scalars.items():
                if math.isfinite(value):
                    writer.add_scalar(name, value, point.step)
        log.num_reports = len(trial.reports)
        if trial.state.finished:
            _facts(writer, trial)
            _memory(writer, trial)
            writer.add_hparams(_plain(trial.params), _results(snapshot, trial), run_name=".")
            self._copy_traces(trial)
        writer.flush()
        if trial.state is not TrialState.RUNNING:
            log.writer = None
            writer.close()

    def close(self, snapshot: Snapshot) -> None:
        """Close the logs that are open."""
        for log in self._logs.values():
            if log.writer is not None:
                log.writer.close()
                log.writer = None

    def _writer(self, log: _Log, folder: Path) -> Any:
        if log.writer is None:
            from torch.utils.tensorboard import SummaryWriter

            # What another process has written of the trial is written again, and hidden there.
            again = log.num_reports == 0 and folder.exists()
            log.writer = SummaryWriter(str(folder), purge_step=0 if again else None)
        return log.writer

    def _copy_traces(self, trial: Trial) -> None:
        if self._files is None:
            return
        traces: Folder = self._files / "trials" / str(trial.number) / FOLDER
        for trace in traces.names():
            if trace.endswith(".pt.trace.json"):
                traces.copy(trace, self._folder / f"trial-{trial.number}")


def _memory(writer: Any, trial: Trial) -> None:
    """Peak memory and the largest modules, at the last step of the trial."""
    step = trial.reports[-1].step if trial.reports else 0
    modules = (
        trial.details.get("memory_by_module_bytes")
        or trial.details.get("estimated_memory_by_module_bytes")
        or {}
    )
    found = {"peak": trial.peak_memory_bytes, **modules}
    for name, value in found.items():
        if isinstance(value, int | float) and math.isfinite(value):
            writer.add_scalar(f"memory_bytes/{name or 'model'}", value, step)


def _facts(writer: Any, trial: Trial) -> None:
    """The state, the message and the details of the trial, as text."""
    lines = [f"**{trial.state}** {trial.failure or ''} {trial.message}".strip()]
    lines += [
        f"- {key}: `{json.dumps(value, default=str)[:2000]}`" for key, value in trial.facts.items()
    ]
    writer.add_text("trial", "\n\n".join(lines))


def _plain(params: Params) -> dict[str, bool | int | float | str]:
    """Values that the HParams page can hold: None and tuples as texts."""
    return {
        key: value if isinstance(value, bool | int | float | str) else str(value)
        for key, value in params.items()
    }


def _results(snapshot: Snapshot, trial: Trial) -> dict[str, float]:
    values = {
        goal.metric: text.goal_value(trial, snapshot, index)
        for index, goal in enumerate(snapshot.goals)
    }
    found = {f"goal/{name}": value for name, value in values.items() if value is not None}
    return found or {"goal/none": math.nan}
