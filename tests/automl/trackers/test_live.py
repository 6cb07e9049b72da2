"""A sweep is written while it runs; a tracker that fails is a warning, and never costs a trial."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from processes import wait_until

import automl
from automl.core import Ended, Goal, Snapshot, Trial, TrialState
from automl.errors import UsageError
from automl.trackers import TRACKERS
from automl.trackers.base import LiveTracker, TrackedSweep, Tracker
from search_spaces import Float, Space
from workers.protocol import Ending, Outcome

SPACE = Space(Float("x", 0.0, 1.0, default=0.5))
SWEEP = TrackedSweep("toy", 1.5)


class Notebook(Tracker):
    """Notes what it is told; fails or hangs on demand."""

    name = "notebook"
    module = "json"

    def __init__(self, failures: int = 0, hangs: bool = False) -> None:
        self.failures, self._hangs = failures, hangs
        self.reports, self.states = dict[int, int](), dict[int, str]()
        self.sweeps, self.closed, self.threads = list[str](), list[str](), set[str]()
        self.released = threading.Event()

    def open(self, sweep: TrackedSweep) -> None:
        self._fail()
        self.sweeps.append(sweep.name)

    def write(self, trial: Trial, snapshot: Snapshot) -> None:
        self.threads.add(threading.current_thread().name)
        if self._hangs:
            self.released.wait(20)
        self._fail()
        assert len(trial.reports) >= self.reports.get(trial.number, 0)
        self.reports[trial.number] = len(trial.reports)
        self.states[trial.number] = str(trial.state)

    def close(self, snapshot: Snapshot) -> None:
        self.closed.append(snapshot.state)

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the server is away")


def objective(trial: Any) -> dict[str, float]:
    if trial.number == 2:
        raise automl.TrialFailure("out_of_memory")
    for step in range(5):
        trial.report(step=step, loss=trial.params["x"] / (step + 1))
    return {"loss": trial.params["x"]}


def sweep(store: Path, tracker: Any, **options: Any) -> automl.Result:
    given: dict[str, Any] = {
        "trials": 4,
        "suggester": "random",
        "dispatcher": "inline",
        "store": store,
        "progress": False,
        **options,
    }
    return automl.sweep(objective, SPACE, "minimize loss", trackers=tracker, **given)


def test_every_trial_is_written_with_its_reports_and_its_end(tmp_path: Path) -> None:
    notebook = Notebook()
    result = sweep(tmp_path, [notebook], name="noted")
    assert notebook.sweeps == ["noted"]
    assert notebook.closed == ["finished"]
    assert notebook.reports == {0: 5, 1: 5, 2: 0, 3: 5}
    assert notebook.states == {trial.number: str(trial.state) for trial in result.trials}
    assert notebook.threads == {"automl-notebook"}


def snapshot(*trials: Trial, state: str = "running", **facts: Any) -> Snapshot:
    return Snapshot("toy", state, trials, (Goal("loss"),), **facts)


def test_a_tracker_that_fails_is_one_warning_and_gets_the_newest_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    notebook = Notebook(failures=2)
    live = LiveTracker(notebook, SWEEP)
    running = Trial(0, {"x": 0.5}, TrialState.RUNNING, attempts=1)
    ended = Trial(0, {"x": 0.5}, TrialState.COMPLETED, {"loss": 1.0}, attempts=1)
    end = Ended(Outcome(0, 1, Ending.COMPLETED), TrialState.COMPLETED)
    with caplog.at_level(logging.WARNING, logger="automl"):
        live.update(snapshot(running))
        wait_until(lambda: not notebook.failures)
        live.update(snapshot(ended, state="finished", events=[end]))
        live.close()
    assert notebook.states == {0: "completed"}
    assert notebook.closed == ["finished"]
    (record,) = caplog.records
    assert record.getMessage() == (
        "notebook fails; the sweep goes on, and what is missing is tried again: "
        "ConnectionError: the server is away"
    )


def test_the_end_waits_for_no_tracker_that_hangs_or_never_answers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for notebook in (Notebook(hangs=True), Notebook(failures=1000)):
        caplog.clear()
        live = LiveTracker(notebook, SWEEP, idle_seconds=0.3)
        trial = Trial(0, {"x": 0.5}, TrialState.RUNNING, attempts=1)
        with caplog.at_level(logging.WARNING, logger="automl"):
            live.update(snapshot(trial))
            live.close()
        notebook.released.set()
        assert caplog.records[-1].getMessage() == (
            "notebook lacks trials of the sweep toy; they are in its store"
        )


def test_the_names_of_trackers_are_checked(tmp_path: Path) -> None:
    assert TRACKERS.names() == ["mlflow", "tensorboard", "wandb"]
    with pytest.raises(UsageError, match="unknown tracker 'mflow': did you mean 'mlflow'"):
        sweep(tmp_path, "mflow")
    with pytest.raises(UsageError, match="trackers must be the name of a tracker or a list"):
        sweep(tmp_path, 3)
    assert not list(tmp_path.iterdir())
