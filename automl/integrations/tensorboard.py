"""Writes a sweep as TensorBoard logs: one run for each trial."""

import json
import math
from pathlib import Path
from typing import Any

from automl.core import Snapshot, Trial, text
from automl.errors import UsageError
from workers.device.profiling import FOLDER
from workers.files.folder import Folder


def write(snapshot: Snapshot, folder: Path, sweep: Folder | None = None) -> int:
    """Write `folder/trial-NUMBER` for each trial that has begun, and return their number.

    A run has the reports as scalars by step (and `seconds_of_training`), the configuration and
    final metrics for the HParams page, memory in bytes (the peak, and by module), and the traces of
    torch's profiler, which TensorBoard's profiler plugin and Perfetto open.

    Args:
        sweep: the folder of the sweep, which has the traces; None if there is none.

    Raises:
        UsageError: tensorboard is not installed, or the folder is not empty.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError as error:
        raise UsageError("this needs tensorboard: install automl[tensorboard]") from error
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty; name a new folder")
    begun = [trial for trial in snapshot.trials if trial.attempts]
    for trial in begun:
        name = f"trial-{trial.number}"
        with SummaryWriter(str(folder / name)) as writer:
            _curves(writer, trial)
            _facts(writer, trial)
            _memory(writer, trial)
            writer.add_hparams(dict(trial.params), _results(snapshot, trial), run_name=".")
        if sweep is not None:
            traces = sweep / "trials" / str(trial.number) / FOLDER
            for trace in traces.names():
                if trace.endswith(".pt.trace.json"):
                    traces.copy(trace, folder / name)
    return len(begun)


def _curves(writer: Any, trial: Trial) -> None:
    for point in trial.reports:
        scalars = {**point.metrics, "seconds_of_training": point.seconds}
        for name, value in scalars.items():
            if math.isfinite(value):
                writer.add_scalar(name, value, point.step)


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
        f"- {key}: `{json.dumps(value, default=str)[:2000]}`"
        for key, value in trial.details.items()
    ]
    writer.add_text("trial", "\n\n".join(lines))


def _results(snapshot: Snapshot, trial: Trial) -> dict[str, float]:
    values = {
        goal.metric: text.goal_value(trial, snapshot, index)
        for index, goal in enumerate(snapshot.goals)
    }
    found = {f"goal/{name}": value for name, value in values.items() if value is not None}
    return found or {"goal/none": math.nan}
