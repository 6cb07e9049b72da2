"""The history of trials as arrays."""

from __future__ import annotations

from dataclasses import replace

from automl.core.goals import Goal
from automl.core.trial import ReportPoint, Trial, TrialState
from automl.suggesters.bayes.data import TrialReader, best_rows, feasible_rows
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


def test_a_trial_that_has_changed_is_read_again():
    space = Space(Float("x", 0.0, 1.0))
    reader = TrialReader(space, [Goal("loss")], [])
    waiting = Trial(0, {"x": 0.5}, TrialState.RUNNING)
    assert len(reader([waiting]).unit) == 0
    ended = replace(waiting, state=TrialState.COMPLETED, metrics={"loss": 2.0})
    assert reader([ended]).losses.tolist() == [[2.0]]
    assert reader([ended]).losses.tolist() == [[2.0]]
    failed = replace(ended, state=TrialState.FAILED, failure="crashed")
    assert reader([failed]).kinds.tolist() == ["crashed"]


def test_each_trial_of_a_front_takes_its_turn():
    space, goals = Space(Float("x", 0.0, 1.0)), [Goal("first"), Goal("second")]
    rows = [(0.2, 0.0), (0.8, 0.0), (0.5, 0.0), (0.55, 0.5), (0.1, 0.5)]
    trials = [
        Trial(i, {"x": x}, TrialState.COMPLETED, {"first": x + more, "second": 1 - x + more})
        for i, (x, more) in enumerate(rows)
    ]
    leaders = []
    for n in (3, 4, 5):
        data = TrialReader(space, goals, [])(trials[:n])
        leaders.append(best_rows(data, feasible_rows(data, ()))[0])
    assert sorted(leaders) == [0, 1, 2]
