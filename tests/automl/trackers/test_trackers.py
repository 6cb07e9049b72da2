"""What every tracker must hold, and what each of them writes: every report once."""

import logging
import re
import shutil
import time
import urllib.request
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import ray
from mlflow.tracking import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import automl
from automl.core import Goal, ReportLog, ReportPoint, Snapshot, Trial, TrialState
from automl.dispatch.ray.session import environment
from automl.ledger import Ledger
from automl.trackers import TRACKERS
from automl.trackers.base import TrackedSweep, Tracker, check_trackers
from automl.trackers.mlflow import MlflowTracker
from automl.trackers.ray_metrics import RayMetrics
from automl.trackers.tensorboard import TensorBoardTracker
from search_spaces import Choice, Float, Space

SPACE = Space(Float("group.x", 0.0, 1.0, default=0.5), Choice("kind", [None, "a b/c", (1, 2)]))
SWEEP = TrackedSweep("toy", 1.5)


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new database of MLflow; to make its tables takes seconds."""
    file = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(tracking_uri=f"sqlite:///{file}").search_experiments()
    return file


@pytest.fixture
def folder(empty_database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, where every tracker writes to."""
    shutil.copy(empty_database, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    return tmp_path


def trial(reports: int, state: TrialState = TrialState.RUNNING) -> Trial:
    """A trial that has begun, with reports at steps 1, 2, ..."""
    points = [ReportPoint(step, {"loss": 1.0 / step}, step) for step in range(1, reports + 1)]
    params, log = {"group.x": 0.25, "kind": (1, 2)}, ReportLog(points)
    return Trial(0, params, state, points[-1].metrics, attempts=1, reports=log)


def snapshot(*trials: Trial, **given: Any) -> Snapshot:
    return Snapshot("toy", "running", trials, (Goal("loss"),), **given)


def write_all(tracker: Tracker, sweep: TrackedSweep, shown: Snapshot) -> None:
    tracker.open(sweep)
    for one in shown.trials:
        tracker.write(one, shown)
    tracker.close(shown)


OPTIONS: dict[str, Any] = {"suggester": "random", "dispatcher": "inline", "progress": False}


@pytest.mark.parametrize("name", TRACKERS.names())
def test_a_sweep_is_written_while_it_runs_and_by_another_process(
    folder: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip(TRACKERS.get(name).module, reason=f"install automl-sweep[{name}]")
    assert check_trackers([name, name]) == (name,)

    def objective(trial: Any) -> float:
        if trial.number == 1:
            raise automl.TrialFailure("out_of_memory")
        trial.report(1, loss=trial.params["group.x"])
        return float(trial.params["group.x"])

    with caplog.at_level(logging.WARNING, logger="automl"):
        automl.sweep(objective, SPACE, "minimize loss", trials=4, trackers=[name], **OPTIONS)
    messages = [record.getMessage() for record in caplog.records]
    assert [one for one in messages if one.startswith((f"{name} fails", f"{name} lacks"))] == []
    tracker = TRACKERS.get(name)()
    tracker.open(SWEEP)
    for count in (1, 2, 2):
        tracker.write(trial(count), snapshot(trial(count)))
    for _ in range(2):
        write_all(TRACKERS.get(name)(), SWEEP, snapshot(trial(4, TrialState.COMPLETED)))


def test_mlflow_has_a_run_for_each_trial_and_what_is_written_again_adds_nothing(
    folder: Path,
) -> None:
    def objective(trial: Any) -> dict[str, float]:
        for step in (1, 2, 3):
            trial.report(step=step, **{"val@loss": trial.params["lr"] / step, "nan": float("nan")})
        return {"val@loss": 0.5}

    def swept(trials: int) -> automl.Result:
        given = {"trials": trials, "name": "seen", "resume": trials > 2, "trackers": ["mlflow"]}
        return automl.sweep(objective, {"lr": (0.1, 1.0)}, "minimize val@loss", **given, **OPTIONS)

    swept(2)
    result = swept(3)
    client = MlflowClient()
    experiment = client.get_experiment_by_name("automl").experiment_id

    def runs() -> dict[str, Any]:
        return {run.info.run_name: run for run in client.search_runs([experiment])}

    def curve(run: Any) -> list[int]:
        return [m.step for m in client.get_metric_history(run.info.run_id, "val_loss")]

    assert sorted(runs()) == ["seen", "trial 0", "trial 1", "trial 2"]
    assert len(client.search_runs([experiment])) == 4
    for one in result.trials:
        run = runs()[f"trial {one.number}"]
        assert run.data.params == {"lr": str(one.params["lr"])}
        assert run.data.metrics["val_loss"] == 0.5
        assert (run.info.status, curve(run)) == ("FINISHED", [1, 2, 3, 3])
        assert abs(run.info.start_time / 1000 - time.time()) < 600
    with closing(Ledger.open(".automl", readonly=True)) as ledger:
        sweep = TrackedSweep.of(ledger, "seen")
    before = {name: curve(run) for name, run in runs().items()}
    write_all(MlflowTracker(), sweep, result.snapshot)
    assert {name: curve(run) for name, run in runs().items()} == before


def test_points_of_tensorboard_come_one_by_one_and_a_process_that_goes_on_repeats_none(
    tmp_path: Path,
) -> None:
    def write(tracker: Tracker, one: Trial, steps: int) -> None:
        tracker.write(one, snapshot(one))
        read.Reload()
        assert [event.step for event in read.Scalars("loss")] == list(range(1, steps + 1))

    read = EventAccumulator(str(tmp_path / "toy" / "trial-0"))
    first, second = TensorBoardTracker(tmp_path), TensorBoardTracker(tmp_path)
    first.open(SWEEP)
    for reports in (1, 2):
        write(first, trial(reports), reports)
    write(first, trial(3, TrialState.PAUSED), 3)
    time.sleep(1.01)  # the files of one second are sorted by the text of a count, 10 before 9
    write(first, trial(4), 4)  # the first process is killed here
    time.sleep(1.01)
    second.open(SWEEP)
    write(second, trial(6, TrialState.COMPLETED), 6)
    second.close(snapshot())
    assert "trial/text_summary" in read.Tags()["tensors"]


def test_ray_tells_what_the_sweep_says() -> None:
    """Metrics of a sweep as Ray's agent tells them to whoever collects them."""
    metrics = {"loss": 2.5}
    done = Trial(0, {}, TrialState.COMPLETED, metrics, attempts=1, seconds=4.0)
    failed = Trial(1, {}, TrialState.FAILED, failure="out_of_memory", peak_memory_bytes=12345)
    running = Trial(2, {}, TrialState.RUNNING, attempts=1)
    given: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False}
    often = {"metrics_report_interval_ms": 500}
    with environment():
        ray.init("local", num_cpus=1, configure_logging=False, _system_config=often, **given)
        try:
            export = RayMetrics("toy")
            export(snapshot(running, num_slots=2))
            export(snapshot(done, failed, running, num_slots=2, busy_slots=1))
            address = f"http://127.0.0.1:{ray.nodes()[0]['MetricsExportPort']}/metrics"
            deadline, page = time.monotonic() + 60, ""
            while time.monotonic() < deadline and "automl_peak_memory_bytes" not in page:
                time.sleep(0.3)
                with suppress(OSError), urllib.request.urlopen(address, timeout=30) as answer:
                    page = answer.read().decode()
        finally:
            ray.shutdown()
    for labels, expected in {
        'trials{.*state="running"': 1,
        'trials{.*state="failed"': 1,
        'failed_trials{.*kind="out_of_memory"': 1,
        'best_goal{.*goal="loss"': 2.5,
        "utilisation{": 0.5,
        "slots{": 2,
        'peak_memory_bytes{.*sweep="toy"': 12345,
    }.items():
        found = re.search(rf"^ray_automl_{labels}.* (\S+)$", page, re.MULTILINE)
        assert found, labels
        assert float(found[1]) == expected
