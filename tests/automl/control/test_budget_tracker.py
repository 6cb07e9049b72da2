from __future__ import annotations

import pytest
from objectives import make_spec

from automl.control.budget_tracker import BudgetTracker
from automl.core.budget import Budget
from automl.core.trial import Trial, TrialState

DONE = TrialState.COMPLETED


@pytest.mark.parametrize(
    ("budget", "now", "reason"),
    [
        (Budget(time=10.0), 9.9, None),
        (Budget(time=10.0), 10.0, "the time of 10 s is over"),
        (Budget(worker_time=20.0), 10.9, None),
        (Budget(worker_time=20.0), 11.0, "the worker time of 20 s is spent"),
    ],
)
def test_time_counts_on_every_slot_that_a_trial_takes(
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
    tracker.end(Trial(1, {}, DONE, {"loss": 1.0}), 5.0)
    assert tracker.spent(60.0, 2) == 0.29
    assert (tracker.busy_slots, tracker.earlier_seconds) == (0, 50.0)
    assert tracker.trial_seconds == 5.0


@pytest.mark.parametrize(("limit", "left"), [(None, None), (3, 2), (1, 0), (0, 0)])
def test_how_many_trials_are_left(limit: int | None, left: int | None) -> None:
    assert BudgetTracker(make_spec(budget=Budget(trials=limit))).trials_left(1) == left
