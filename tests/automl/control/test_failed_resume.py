"""A trial that cannot go on keeps what it has reported: a failed resume is no bad configuration."""

from __future__ import annotations

import pytest
from objectives import make_spec

from automl.control.outcomes import ended
from automl.core import Trial, TrialState
from automl.core.trial import ReportLog, ReportPoint
from workers.protocol import Ending, Outcome


@pytest.mark.parametrize(
    ("attempt", "metrics", "failure", "state"),
    [
        (1, {"loss": 0.5}, "crashed", TrialState.STOPPED),
        (2, {"loss": 0.5}, "crashed", TrialState.FAILED),  # this attempt has reported too
        (1, {"accuracy": 0.5}, "crashed", TrialState.FAILED),
        (1, {"loss": 0.5}, "out_of_memory", TrialState.FAILED),
    ],
)
def test_the_last_report_counts(
    attempt: int, metrics: dict[str, float], failure: str, state: TrialState
) -> None:
    reports = ReportLog([ReportPoint(3, metrics, 1.0, attempt)])
    trial = Trial(0, {"x": 1}, TrialState.RUNNING, attempts=2, reports=reports)
    outcome = Outcome(0, 2, Ending.FAILED, failure=failure, message="EOFError: torn")
    after = ended(make_spec(), trial, outcome, 9.0)
    assert after.state is state
    if state is TrialState.STOPPED:
        assert after.failure is None
        assert after.message == "could not go on, so its last report counts: EOFError: torn"
