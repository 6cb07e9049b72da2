"""The promises of every tracker.

A plugin runs them with `pytest --automl-conformance`: each tracker of an entry point writes sweeps
of this machine, from an empty folder. If its tool needs a server, name one as users do.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import automl
from automl.core import Snapshot, Trial, TrialState
from automl.core.goals import Goal
from automl.core.reports import ReportLog, ReportPoint
from automl.trackers import TRACKERS
from automl.trackers.base import TrackedSweep, Tracker, check_trackers, write_all
from search_spaces import Choice, Float, Space
from workers.protocol import Params

SPACE = Space(Float("group.x", 0.0, 1.0, default=0.5), Choice("kind", [None, "a b/c", (1, 2)]))
SWEEP = TrackedSweep("conformance", 1.5)


@pytest.fixture(params=TRACKERS.installed())
def name(request: pytest.FixtureRequest) -> str:
    """The name of the tracker that is tested."""
    return str(request.param)


@pytest.fixture
def tracker(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tracker:
    """A new tracker, which may write into the current folder."""
    monkeypatch.chdir(tmp_path)
    return TRACKERS.get(name)()


def trial(number: int, state: TrialState, metrics: Sequence[dict[str, float]]) -> Trial:
    """A trial that has begun, with these reports."""
    points = [ReportPoint(step, one, 0.1 * step) for step, one in enumerate(metrics, 1)]
    params: Params = {"group.x": 0.25, "kind": (1, 2)}
    failure = "crashed" if state is TrialState.FAILED else None
    final = metrics[-1] if metrics else {}
    return Trial(number, params, state, final, failure, attempts=1, reports=ReportLog(points))


def odd_trials() -> list[Trial]:
    """Trials in every state: without reports, with numbers that are not finite, with odd names."""
    values = [{"loss": 1.0}, {"loss": math.nan, "val@loss/a b": math.inf}, {"loss": 1e300}]
    states = [state for state in TrialState if state is not TrialState.WAITING]
    return [trial(number, state, values[: number % 4]) for number, state in enumerate(states)]


def snapshot(trials: Sequence[Trial]) -> Snapshot:
    """A finished sweep of these trials."""
    return Snapshot(SWEEP.name, "finished", trials, (Goal("loss"),))


def test_it_is_found_by_its_name(name: str) -> None:
    """It needs no argument, and its tool is here."""
    assert check_trackers([name]) == (name,)
    kind = TRACKERS.get(name)
    assert issubclass(kind, Tracker)
    assert kind.name == name


def test_a_sweep_is_written_while_it_runs(
    name: str, tracker: Tracker, caplog: pytest.LogCaptureFixture
) -> None:
    """No warning says that the tool has failed; a failed trial is written, too."""

    def objective(trial: Any) -> float:
        if trial.number == 1:
            raise automl.TrialFailure("out_of_memory")
        for step in range(3):
            trial.report(step, loss=trial.params["group.x"] / (step + 1))
        return float(trial.params["group.x"])

    options: dict[str, Any] = {"suggester": "random", "dispatcher": "inline", "progress": False}
    with caplog.at_level(logging.WARNING, logger="automl"):
        automl.sweep(objective, SPACE, "minimize loss", trials=4, trackers=[name], **options)
    messages = [record.getMessage() for record in caplog.records]
    assert [one for one in messages if one.startswith((f"{name} fails", f"{name} lacks"))] == []


def test_odd_trials_are_written(tracker: Tracker) -> None:
    """Every state, no report, numbers that are not finite, names with signs."""
    trials = odd_trials()
    assert write_all(tracker, SWEEP, snapshot(trials)) == len(trials)


def test_it_changes_nothing(tracker: Tracker) -> None:
    """Trials stay as they were."""
    trials = odd_trials()[:4]
    before = [repr(one) for one in trials]
    write_all(tracker, SWEEP, snapshot(trials))
    assert [repr(one) for one in trials] == before


def test_it_goes_on(name: str, tracker: Tracker) -> None:
    """A trial is written again as it grows, and by another process once more."""
    values = [{"loss": 1.0 / step} for step in range(1, 5)]
    tracker.open(SWEEP)
    for count in (1, 2, 2):
        growing = trial(0, TrialState.RUNNING, values[:count])
        tracker.write(growing, snapshot([growing]))
    ended = trial(0, TrialState.COMPLETED, values)
    write_all(TRACKERS.get(name)(), SWEEP, snapshot([ended]))
    write_all(TRACKERS.get(name)(), SWEEP, snapshot([ended]))
