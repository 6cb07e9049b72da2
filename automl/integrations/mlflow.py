"""Logs a sweep to MLflow: one run for each trial, nested in the run of the sweep."""

import math
from typing import Any

from automl.core import Snapshot, Trial, TrialState
from automl.errors import UsageError

STATUS = {
    TrialState.FAILED: "FAILED",
    TrialState.RUNNING: "RUNNING",
    TrialState.INTERRUPTED: "KILLED",
}


def write(snapshot: Snapshot, tracking_uri: str, experiment: str = "automl") -> str:
    """Log the configuration, curves, final metrics and status of every trial that has begun.

    Args:
        tracking_uri: an MLflow server, or a database such as sqlite:///mlflow.db.
        experiment: name of the MLflow experiment.

    Returns:
        The id of the run of the sweep.

    Raises:
        UsageError: mlflow is not installed, or its server cannot be used.
    """
    try:
        from mlflow.exceptions import MlflowException
    except ModuleNotFoundError as error:
        raise UsageError("this needs mlflow: install automl[mlflow]") from error
    try:
        return _log(snapshot, tracking_uri, experiment)
    except MlflowException as error:
        raise UsageError(f"{tracking_uri}: {' '.join(str(error).split())[:300]}") from error


def _log(snapshot: Snapshot, tracking_uri: str, experiment: str) -> str:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=tracking_uri)
    found = client.get_experiment_by_name(experiment)
    place = found.experiment_id if found else client.create_experiment(experiment)
    tags = {"mlflow.runName": snapshot.sweep, "goals": "; ".join(map(str, snapshot.goals))}
    parent: str = client.create_run(place, tags=tags).info.run_id
    for trial in snapshot.trials:
        if trial.attempts:
            _write(client, place, parent, trial)
    client.set_terminated(parent, "RUNNING" if snapshot.state == "running" else "FINISHED")
    return parent


def _write(client: Any, place: str, parent: str, trial: Trial) -> None:
    from mlflow.entities import Metric, Param

    tags = {
        "mlflow.runName": f"trial {trial.number}",
        "mlflow.parentRunId": parent,
        "source": trial.source,
    }
    if trial.failure:
        tags["failure"] = f"{trial.failure}: {trial.message}"[:500]
    run = client.create_run(place, tags=tags).info.run_id
    last = trial.reports[-1].step if trial.reports else 0
    # Of the values of one step, MLflow shows the newest.
    end = max([trial.seconds, *(p.seconds for p in trial.reports)]) + 1e-3
    points = [
        *((p.step, p.seconds, p.metrics) for p in trial.reports),
        (last, end, trial.metrics),
    ]
    metrics = [
        Metric(name, value, int(seconds * 1000), step)
        for step, seconds, values in points
        for name, value in values.items()
        if math.isfinite(value)
    ]
    for start in range(0, len(metrics), 500):
        client.log_batch(run, metrics=metrics[start : start + 500])
    client.log_batch(run, params=[Param(k, str(v)) for k, v in trial.params.items()])
    client.set_terminated(run, STATUS.get(trial.state, "FINISHED"))
