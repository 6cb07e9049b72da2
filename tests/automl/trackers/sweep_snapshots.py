"""Snapshots of one sweep, as its controller shows them one after the other."""

from __future__ import annotations

from automl.core import (
    Begun,
    Ended,
    Goal,
    ReportLog,
    ReportPoint,
    Snapshot,
    Trial,
    TrialState,
)
from workers.protocol import Ending, Outcome, Report

METRICS = {"loss": 2.5, "items_per_second": 70.0}
DONE = Trial(
    0,
    {},
    TrialState.COMPLETED,
    METRICS,
    attempts=1,
    seconds=4.0,
    started=0.5,
    ended=4.5,
    reports=ReportLog([ReportPoint(1, METRICS, 3.0)]),
)
FAILED = Trial(
    1,
    {},
    TrialState.FAILED,
    failure="out_of_memory",
    attempts=2,
    seconds=1.0,
    peak_memory_bytes=12345,
)
RUNNING = Trial(2, {}, TrialState.RUNNING, attempts=1)


def snapshot(*trials: Trial, **given: object) -> Snapshot:
    return Snapshot(
        "toy",
        "running",
        trials,
        (Goal("loss"),),
        num_slots=2,
        busy_slots=1,
        **given,  # type: ignore[arg-type]
    )


FIRST = snapshot(
    *(Trial(number, {}, TrialState.RUNNING, attempts=1) for number in range(2)),
    events=[Begun(0, 1), Begun(1, 1)],
    suggestion_seconds=(0.05, 0.05),
)
LATER = snapshot(
    *(DONE, FAILED, RUNNING),
    num_ready=2,
    suggestion_seconds=(0.05, 0.05, 0.5, 0.5, 20.0),
    seconds=9.0,
    events=[
        Report(0, 1, 0, 1, METRICS, 3.0),
        Begun(1, 2),
        Begun(2, 1),
        Ended(Outcome(0, 1, Ending.COMPLETED), TrialState.COMPLETED),
        Ended(Outcome(1, 2, Ending.FAILED), TrialState.FAILED, "out_of_memory"),
    ],
)
