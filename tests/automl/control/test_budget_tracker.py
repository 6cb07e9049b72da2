from __future__ import annotations

from typing import Any

import pytest
from objectives import make_spec

from automl.control.budget_tracker import BudgetTracker
from automl.core.budget import Budget
from automl.core.goals import parse_goals
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


def ended(seconds: float, state: TrialState = DONE, **changes: Any) -> BudgetTracker:
    """A tracker that has seen one attempt of so many seconds, which ended at 50 s."""
    tracker = BudgetTracker(make_spec(**changes))
    tracker.begin(0, 50.0 - seconds, 1)
    tracker.end(Trial(0, {}, state, {"loss": 1.0}), seconds)
    return tracker


def test_a_trial_that_cannot_end_in_time_does_not_begin() -> None:
    tracker = ended(20.0, budget=Budget(time=80.0))
    assert tracker.reason_to_begin_none(60.0) is None
    assert tracker.reason_to_begin_none(60.1) == (
        "19.9 s are left, and the shortest trial so far took 20 s"
    )
    assert BudgetTracker(make_spec(budget=Budget(time=80.0))).reason_to_begin_none(79.9) is None


def test_running_trials_need_worker_time_too() -> None:
    tracker = ended(20.0, budget=Budget(worker_time=100.0))
    tracker.begin(1, 60.0, 2)  # it has used 10 s of 2 slots, and needs as much again
    assert tracker.reason_to_begin_none(70.0, 2) is None
    assert tracker.reason_to_begin_none(70.0, 3) == (
        "40 s of worker time are left, and the shortest trial so far took 20 s"
    )


@pytest.mark.parametrize("state", [TrialState.FAILED, TrialState.STOPPED, TrialState.WAITING])
def test_attempts_that_did_not_end_well_say_nothing_of_the_time_needed(state: TrialState) -> None:
    assert ended(20.0, state, budget=Budget(time=80.0)).reason_to_begin_none(79.0) is None


@pytest.mark.parametrize("state", [DONE, TrialState.STOPPED])
def test_trials_that_never_ran_say_nothing_of_it_either(state: TrialState) -> None:
    tracker = BudgetTracker(make_spec(budget=Budget(time=80.0), stopper="asha"))
    tracker.add_earlier(Trial(0, {}, state, {"loss": 1.0}), 0.0, 1)  # imported, or never begun
    tracker.add_earlier(Trial(1, {}, DONE, {"loss": 1.0}), 20.0, 1)
    assert tracker.reason_to_begin_none(79.0) is not None


def test_with_a_stopper_the_shortest_slice_counts() -> None:
    tracker = ended(2.0, TrialState.PAUSED, budget=Budget(time=80.0), stopper="asha")
    assert tracker.reason_to_begin_none(77.0) is None
    assert tracker.reason_to_begin_none(79.0) is not None


def test_a_goal_with_a_deadline_needs_only_that() -> None:
    goals = parse_goals("minimize loss within 5s")
    tracker = ended(20.0, budget=Budget(time=80.0), goals=goals)
    assert tracker.reason_to_begin_none(75.0) is None
    assert tracker.reason_to_begin_none(76.0) == "4 s are left, and the goal needs 5 s of training"
    tracker = ended(3.0, budget=Budget(time=80.0), goals=goals)
    assert tracker.reason_to_begin_none(76.0) is None
