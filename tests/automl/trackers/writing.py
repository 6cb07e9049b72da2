"""Writes a sweep with a tracker at once."""

from __future__ import annotations

from automl.core import Snapshot
from automl.trackers.base import TrackedSweep, Tracker


def write_all(tracker: Tracker, sweep: TrackedSweep, snapshot: Snapshot) -> None:
    tracker.open(sweep)
    for trial in snapshot.trials:
        if trial.attempts:
            tracker.write(trial, snapshot)
    tracker.close(snapshot)
