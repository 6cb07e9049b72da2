"""A sweep as TensorBoard logs: a run a trial, with its curves, and its configuration among the hyperparameters."""

from __future__ import annotations

import json
import math
from pathlib import Path

from automl import ranking
from automl.errors import UsageError
from automl.snapshot import Snapshot
from automl.trial import Trial


def write(snapshot: Snapshot, folder: Path) -> int:
    """Write `folder/trial-NUMBER` for each trial that has begun, and return how many these are.

    Each gets its reports as scalars by step (a metric named as it was reported, `seconds_of_training` beside it), its
    configuration and final metrics for the HParams page, and what it used of memory by module as text.

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
            writer.add_hparams(dict(trial.params), _results(snapshot, trial), run_name=".")
    return len(begun)


def _curves(writer: object, trial: Trial) -> None:
    for point in trial.reports:
        scalars = {**point.metrics, "seconds_of_training": point.seconds}
        for name, value in scalars.items():
            if math.isfinite(value):
                writer.add_scalar(name, value, point.step)  # type: ignore[attr-defined]


def _facts(writer: object, trial: Trial) -> None:
    """What is no number: how it ended, and further facts such as memory by module."""
    lines = [f"**{trial.state}** {trial.failure or ''} {trial.message}".strip()]
    lines += [f"- {key}: `{json.dumps(value, default=str)[:2000]}`" for key, value in trial.details.items()]
    writer.add_text("trial", "\n\n".join(lines))  # type: ignore[attr-defined]


def _results(snapshot: Snapshot, trial: Trial) -> dict[str, float]:
    limits, last = snapshot.constraints, snapshot.last_report_counts
    values = {goal.metric: ranking.value(trial, goal, limits, last_report_counts=last) for goal in snapshot.goals}
    found = {f"goal/{name}": value for name, value in values.items() if value is not None}
    return found or {"goal/none": math.nan}
