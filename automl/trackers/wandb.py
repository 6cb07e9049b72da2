"""Weights & Biases: one run for each trial, in a group for the sweep."""

import math
import os
import re
from typing import Any

from automl.core import Snapshot, Trial, TrialState
from automl.errors import UsageError

from .base import TrackedSweep, Tracker


class WandbTracker(Tracker):
    """Logs the configuration, the curves, the final metrics and the failure of each trial.

    With the environment variable WANDB_MODE=offline it writes files that `wandb sync` uploads. All
    other variables of the tool count too. A run that goes on has the id that it had before.

    Args:
        project: its name; None for the environment variable WANDB_PROJECT, or else "automl".
    """

    name = "wandb"
    module = "wandb"

    def __init__(self, project: str | None = None) -> None:
        self._project = project or os.environ.get("WANDB_PROJECT") or "automl"
        self._runs: dict[int, Any] = {}  # that are open
        self._num_reports: dict[int, int] = {}

    def open(self, sweep: TrackedSweep) -> None:
        """Log in with the key that is configured.

        Raises:
            UsageError: there is none, and the mode is online.
        """
        import wandb

        online = wandb.setup().settings.mode == "online"
        if online and not wandb.login(prompt=False, verify=False):
            raise UsageError("no key: run `wandb login`, or set WANDB_MODE=offline")
        self._sweep = sweep

    def write(self, trial: Trial, snapshot: Snapshot) -> None:
        """Add the new reports and, if the trial does not run any more, end its run."""
        run = self._runs.get(trial.number) or self._start(trial)
        for number in range(self._num_reports[trial.number], len(trial.reports)):
            point = trial.reports[number]
            run.log({**point.metrics, "step": point.step, "seconds": point.seconds}, step=number)
            self._num_reports[trial.number] = number + 1
        if trial.state is TrialState.RUNNING:
            return
        finite = {key: value for key, value in trial.metrics.items() if math.isfinite(value)}
        run.summary.update({**finite, "state": str(trial.state), "message": trial.message})
        run.finish(exit_code=1 if trial.failure else 0)
        del self._runs[trial.number]

    def close(self, snapshot: Snapshot) -> None:
        """End the runs that are open."""
        while self._runs:
            _, run = self._runs.popitem()
            run.finish(exit_code=1)

    def _start(self, trial: Trial) -> Any:
        import wandb

        run = wandb.init(
            project=self._project,
            group=self._sweep.name,
            job_type="trial",
            name=f"trial {trial.number}",
            id=re.sub(r"[^\w-]", "-", f"{self._sweep.id}-{trial.number}"),
            config={"trial": trial.number, "source": trial.source, **trial.params},
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off", x_disable_stats=True),
        )
        run.define_metric("*", step_metric="step")
        # The reports that another process has logged; a run that is not resumed has none.
        self._num_reports.setdefault(trial.number, run.step)
        self._runs[trial.number] = run
        return run
