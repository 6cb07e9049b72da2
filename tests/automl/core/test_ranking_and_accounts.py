from __future__ import annotations

import math
from typing import Any

import pytest
from objectives import make_spec

from automl.control.budget_tracker import BudgetTracker
from automl.core import ranking
from automl.core.budget import Budget
from automl.core.goals import parse_constraints, parse_goals
from automl.core.trial import ReportPoint, Trial, TrialState
from automl.core.trial_index import TrialIndex

DONE = TrialState.COMPLETED


def trial(
    number: int, state: TrialState = DONE, reports: tuple[float, ...] = (), **metrics: float
) -> Trial:
    points = tuple(ReportPoint(i, {"loss": loss}, float(i), 1, i) for i, loss in enumerate(reports))
    return Trial(number, {"lr": 0.1}, state, metrics, reports=points)


def test_a_goal_takes_the_best_report_unless_only_the_last_counts() -> None:
    (goal,) = parse_goals("minimize loss")
    overfitted = trial(0, reports=(3.0, 1.0, 2.0), loss=2.0)
    assert ranking.value(overfitted, goal) == 1.0
    assert ranking.value(overfitted, goal, last_report_counts=True) == 2.0
    assert ranking.value(trial(1, TrialState.RUNNING, (3.0,), loss=3.0), goal) == 3.0
    assert (
        ranking.value(trial(1, TrialState.RUNNING, (3.0,), loss=3.0), goal, last_report_counts=True)
        is None
    )


def test_what_failed_or_is_not_finite_has_no_value() -> None:
    (goal,) = parse_goals("maximize bleu")
    assert ranking.value(trial(0, TrialState.FAILED, bleu=9.0), goal) is None
    assert ranking.value(trial(0, bleu=math.inf), goal) is None
    assert ranking.value(trial(0, loss=1.0), goal) is None


def test_the_best_satisfies_the_constraints_and_is_the_earlier_of_equals() -> None:
    goals, constraints = parse_goals("minimize loss"), parse_constraints("size <= 5")
    trials = [
        trial(0, loss=1.0, size=9.0),
        trial(1, loss=2.0, size=5.0),
        trial(2, loss=2.0, size=1.0),
        trial(3, loss=0.1),
    ]
    found = ranking.best(trials, goals, constraints)
    assert found is not None
    assert found.number == 1
    assert ranking.best(trials[:1], goals, constraints) is None


def test_equal_trials_share_the_pareto_front() -> None:
    goals = parse_goals(["minimize loss", "maximize bleu"])
    values = [(1.0, 1.0), (0.5, 0.5), (1.0, 0.9), (1.0, 1.0), (2.0, 3.0)]
    trials = [trial(number, loss=loss, bleu=bleu) for number, (loss, bleu) in enumerate(values)]
    assert [found.number for found in ranking.pareto(trials, goals)] == [0, 1, 3, 4]


@pytest.mark.parametrize(
    ("budget", "now", "reason"),
    [
        (Budget(time=10.0), 9.9, None),
        (Budget(time=10.0), 10.0, "the time of 10 s is over"),
        (Budget(worker_time=20.0), 10.9, None),
        (Budget(worker_time=20.0), 11.0, "the worker time of 20 s is spent"),
    ],
)
def test_time_counts_what_runs_on_every_slot(
    budget: Budget, now: float, reason: str | None
) -> None:
    tracker = BudgetTracker(make_spec(budget=budget))
    tracker.begin(0, 1.0, 2)
    assert tracker.busy_slots == 2
    assert tracker.reason_to_end(now) == reason


def test_ended_attempts_count_with_their_slots_and_earlier_runs_count_too() -> None:
    tracker = BudgetTracker(make_spec(budget=Budget(worker_time=100.0)), seconds=50.0)
    tracker.add_earlier(Trial(0, {}, DONE, seconds=7.0), 7.0, 2)
    tracker.begin(1, 50.0, 3)
    tracker.end(trial(1, loss=1.0), 5.0)
    assert tracker.spent(60.0, 2) == 0.29
    assert (tracker.busy_slots, tracker.earlier_seconds) == (0, 50.0)
    assert tracker.trial_seconds == 5.0


@pytest.mark.parametrize(("limit", "left"), [(None, None), (3, 2), (1, 0), (0, 0)])
def test_trials_left(limit: int | None, left: int | None) -> None:
    assert BudgetTracker(make_spec(budget=Budget(trials=limit))).trials_left(1) == left


def test_a_trial_is_in_one_list_at_a_time() -> None:
    history = TrialIndex()
    path: list[Any] = [
        TrialState.WAITING,
        TrialState.RUNNING,
        TrialState.PAUSED,
        TrialState.WAITING,
        DONE,
    ]
    for state in path:
        for number in (2, 0, 1):
            history.update(trial(number, state))
        pending = state in (TrialState.WAITING, TrialState.RUNNING)
        assert [t.number for t in history.pending] == ([0, 1, 2] if pending else [])
        assert [t.number for t in history.known] == ([] if pending else [0, 1, 2])
        assert history.num_running == (3 if state is TrialState.RUNNING else 0)
        waiting = history.next_waiting
        assert (waiting.number if waiting else None) == (0 if state is TrialState.WAITING else None)
