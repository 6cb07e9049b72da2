"""MLflow: one run for each trial, nested in the run of the sweep."""

import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from automl.core import Snapshot, Trial, TrialState

from .base import TrackedSweep, Tracker

_STATUS: Final = {
    TrialState.RUNNING: "RUNNING",
    TrialState.PAUSED: "SCHEDULED",
    TrialState.WAITING: "SCHEDULED",
    TrialState.INTERRUPTED: "KILLED",
    TrialState.FAILED: "FAILED",
}
_ENDS: Final = {"running": "RUNNING", "interrupted": "KILLED", "failed": "FAILED"}
_SWEEP: Final = "automl.sweep"  # tags: the identity of the sweep, in its own run
_TRIAL: Final = "automl.trial"
_REPORTS: Final = "automl.reports"  # how many of a trial's reports its run has
_STATE: Final = "automl.state"
_UNUSUAL: Final = re.compile(r"[^\w\-./ ]")  # MLflow refuses these in names
_AT_ONCE: Final = 1000  # metrics of one request
_PARAMS_AT_ONCE: Final = 100


@dataclass
class _Run:
    """The run of a trial: its id, the reports in it, and the trial's state there; "" if new."""

    id: str
    num_reports: int
    state: str


class MlflowTracker(Tracker):
    """Logs the configuration, the curves, the final metrics and the status of each trial.

    If it writes a sweep again, it adds to the same runs what they lack.

    Args:
        uri: an MLflow server, or a database such as "sqlite:///mlflow.db"; None for the environment
            variable MLFLOW_TRACKING_URI, or else that database.
        experiment: its name; None for MLFLOW_EXPERIMENT_NAME, or else "automl".
    """

    name = "mlflow"
    module = "mlflow"

    def __init__(self, uri: str | None = None, experiment: str | None = None) -> None:
        self._uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"
        self._experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "automl"
        self._runs: dict[int, _Run] = {}

    def open(self, sweep: TrackedSweep) -> None:
        """Find or create the experiment and the run of the sweep."""
        from mlflow.tracking import MlflowClient

        client = self._client = MlflowClient(tracking_uri=self._uri)
        found = client.get_experiment_by_name(self._experiment)
        self._folder = found.experiment_id if found else client.create_experiment(self._experiment)
        self._created = sweep.created
        self._parent = self._run({_SWEEP: sweep.id}, {"mlflow.runName": sweep.name}).info.run_id

    def write(self, trial: Trial, snapshot: Snapshot) -> None:
        """Add the reports that the run of a trial lacks, and the end of the trial."""
        from mlflow.entities import Param, RunTag

        run = self._runs.get(trial.number) or self._begin(trial)
        if (run.state, run.num_reports) == (trial.state, len(trial.reports)):
            return
        metrics = list(self._metrics(trial, run.num_reports))
        params = [Param(_name(key), str(value)) for key, value in trial.params.items()]
        tags = [RunTag(_REPORTS, str(len(trial.reports))), RunTag(_STATE, str(trial.state))]
        if trial.failure:
            tags.append(RunTag("failure", f"{trial.failure}: {trial.message}"[:500]))
        if not run.state:
            for at in range(0, len(params), _PARAMS_AT_ONCE):
                self._client.log_batch(run.id, params=params[at : at + _PARAMS_AT_ONCE])
        for at in range(0, len(metrics), _AT_ONCE):
            self._client.log_batch(run.id, metrics=metrics[at : at + _AT_ONCE])
        self._client.log_batch(run.id, tags=tags)
        status = _STATUS.get(trial.state, "FINISHED")
        ends = self._client.set_terminated if trial.state.finished else self._client.update_run
        ends(run.id, status)
        run.num_reports, run.state = len(trial.reports), str(trial.state)

    def close(self, snapshot: Snapshot) -> None:
        """Write the goals and the state of the sweep."""
        self._client.set_tag(self._parent, "goals", "; ".join(map(str, snapshot.goals)))
        self._client.set_terminated(self._parent, _ENDS.get(snapshot.state, "FINISHED"))

    def _run(self, identity: dict[str, str], tags: dict[str, str], begun: int | None = None) -> Any:
        """The run with these tags, which is made if there is none."""
        wanted = " and ".join(f"tags.`{key}` = '{value}'" for key, value in identity.items())
        found = self._client.search_runs([self._folder], wanted, max_results=1)
        return found[0] if found else self._client.create_run(self._folder, begun, identity | tags)

    def _begin(self, trial: Trial) -> _Run:
        """The run of a trial, which another process may have begun."""
        identity = {"mlflow.parentRunId": self._parent, _TRIAL: str(trial.number)}
        tags = {"mlflow.runName": f"trial {trial.number}", "source": trial.source}
        run = self._run(identity, tags, self._time(trial, 0.0))
        known = run.data.tags
        made = _Run(run.info.run_id, int(known.get(_REPORTS, 0)), known.get(_STATE, ""))
        return self._runs.setdefault(trial.number, made)

    def _metrics(self, trial: Trial, first: int) -> Iterator[Any]:
        """The metrics of the reports from the first on and, if the trial has ended, the last."""
        from mlflow.entities import Metric

        points = [(p.step, p.seconds, p.metrics) for p in trial.reports[first:]]
        if trial.state.finished:
            step = trial.reports[-1].step if trial.reports else 0
            # Of the values of one step, MLflow shows the newest.
            end = max([trial.seconds, *(p.seconds for p in trial.reports)]) + 1e-3
            points.append((step, end, trial.metrics))
        for step, seconds, values in points:
            for name, value in values.items():
                if math.isfinite(value):
                    yield Metric(_name(name), value, self._time(trial, seconds), step)

    def _time(self, trial: Trial, seconds: float) -> int:
        """The time of a trial in milliseconds since 1970."""
        return int((self._created + (trial.started or 0.0) + seconds) * 1000)


def _name(name: str) -> str:
    return _UNUSUAL.sub("_", name)[:250]
