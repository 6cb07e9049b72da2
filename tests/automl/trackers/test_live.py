"""A sweep is written while it runs; a tracker that fails is a warning, and never costs a trial."""

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
from workers.protocol import Ending, Outcome

SWEEP = TrackedSweep("toy", 1.5)


class Notebook(Tracker):
    """Notes what it is told; fails or hangs on demand."""

    name = "notebook"
    module = "json"

    def __init__(self, failures: int = 0, hangs: bool = False) -> None:
        self.failures, self._hangs = failures, hangs
        self.states, self.threads = dict[int, str](), set[str]()
        self.sweeps, self.closed = list[str](), list[str]()
        self.released = threading.Event()

    def open(self, sweep: TrackedSweep) -> None:
        self._fail()
        self.sweeps.append(sweep.name)

    def write(self, trial: Trial, snapshot: Snapshot) -> None:
        self.threads.add(threading.current_thread().name)
        if self._hangs:
            self.released.wait(20)
        self._fail()
        self.states[trial.number] = str(trial.state)

    def close(self, snapshot: Snapshot) -> None:
        self.closed.append(snapshot.state)

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the server is away")


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
    assert (notebook.sweeps, notebook.closed) == (["toy"], ["finished"])
    assert (notebook.states, notebook.threads) == ({0: "completed"}, {"automl-notebook"})
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
    for given, message in {
        "mflow": "unknown tracker 'mflow': did you mean 'mlflow'",
        3: "trackers must be the name of a tracker or a list",
    }.items():
        with pytest.raises(UsageError, match=message):
            automl.sweep(
                print, {"x": (0.0, 1.0)}, "minimize loss", trials=1, trackers=given, store=tmp_path
            )
    assert not list(tmp_path.iterdir())
