"""The history of trials as arrays."""

from __future__ import annotations

from automl.core.goals import Goal
from automl.core.trial import ReportPoint, Trial, TrialState
from automl.suggesters.bayes.data import TrialReader
from search_spaces import Float, Space


def test_estimates_replace_unknown_memory():
    space = Space(Float("size", 0.0, 10.0))
    done = [
        Trial(
            i,
            {"size": float(i)},
            TrialState.COMPLETED,
            {"loss": 1.0, "estimated_memory_bytes": 50.0 * (i + 1)},
            peak_memory_bytes=100 * (i + 1),
        )
        for i in range(3)
    ]
    failed = Trial(
        3,
        {"size": 9.0},
        TrialState.FAILED,
        {"estimated_memory_bytes": 500.0},
        "out_of_memory",
        peak_memory_bytes=400,
    )
    data = TrialReader(space, [Goal("loss")], [])([*done, failed])
    assert data.memory.tolist() == [100, 200, 300, 1000]


def test_reports_of_paused_trials_count():
    space = Space(Float("x", 0.0, 1.0))
    report = ReportPoint(3, {"loss": 0.7}, 1.0)
    history = [
        Trial(0, {"x": 0.1}, TrialState.COMPLETED, {"loss": 0.5}),
        Trial(1, {"x": 0.2}, TrialState.PAUSED, {"loss": 0.7}, reports=(report,)),
        Trial(2, {"x": 0.3}, TrialState.INTERRUPTED),
        Trial(3, {"x": 0.4}, TrialState.RUNNING, {"loss": 0.1}, reports=(report,)),
    ]
    data = TrialReader(space, [Goal("loss")], [])(history)
    assert data.losses[:, 0].tolist() == [0.5, 0.7]
    assert not data.failed.any()
