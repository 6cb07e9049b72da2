"""A sweep as TensorBoard logs: a run a trial, with its curves, and its configuration among the hyperparameters."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

from automl.core import ranking
from automl.core.snapshot import Snapshot
from automl.core.trial import Trial
from automl.errors import UsageError
from workers.device.profiling import FOLDER


def write(snapshot: Snapshot, folder: Path, sweep: Path | None = None) -> int:
    """Write `folder/trial-NUMBER` for each trial that has begun, and return how many these are.

    Each gets its reports as scalars by step (a metric named as it was reported, `seconds_of_training` beside it), its
    configuration and final metrics for the HParams page, its memory (the peak, and by module in bytes) as scalars,
    and the traces of torch's profiler, which TensorBoard's profiler plugin and Perfetto open.

    Args:
        sweep: the sweep's own folder, where the traces are; None where it has none.

    Raises:
        UsageError: tensorboard is not installed, or the folder holds something already.
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
            _traces(sweep / "trials" / str(trial.number) / FOLDER, folder / name)
    return len(begun)


def _curves(writer: object, trial: Trial) -> None:
    for point in trial.reports:
        scalars = {**point.metrics, "seconds_of_training": point.seconds}
        for name, value in scalars.items():
            if math.isfinite(value):
                writer.add_scalar(name, value, point.step)  # type: ignore[attr-defined]


def _memory(writer: object, trial: Trial) -> None:
    """The peak and the largest modules, at the trial's last step."""
    step = trial.reports[-1].step if trial.reports else 0
    modules = (
        trial.details.get("memory_by_module_bytes")
        or trial.details.get("estimated_memory_by_module_bytes")
        or {}
    )
    found = {"peak": trial.peak_memory_bytes, **modules}
    for name, value in found.items():
        if isinstance(value, int | float) and math.isfinite(value):
            writer.add_scalar(f"memory_bytes/{name or 'model'}", value, step)  # type: ignore[attr-defined]


def _traces(source: Path, target: Path) -> None:
    for path in sorted(source.glob("*.pt.trace.json")):
        shutil.copyfile(path, target / path.name)


def _facts(writer: object, trial: Trial) -> None:
    """What is no number: how it ended, and further facts such as memory by module."""
    lines = [f"**{trial.state}** {trial.failure or ''} {trial.message}".strip()]
    lines += [
        f"- {key}: `{json.dumps(value, default=str)[:2000]}`"
        for key, value in trial.details.items()
    ]
    writer.add_text("trial", "\n\n".join(lines))  # type: ignore[attr-defined]


def _results(snapshot: Snapshot, trial: Trial) -> dict[str, float]:
    limits, last = snapshot.constraints, snapshot.last_report_counts
    values = {
        goal.metric: ranking.value(trial, goal, limits, last_report_counts=last)
        for goal in snapshot.goals
    }
    found = {f"goal/{name}": value for name, value in values.items() if value is not None}
    return found or {"goal/none": math.nan}
