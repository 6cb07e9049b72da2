from __future__ import annotations

from typing import Any

import pytest
from objectives import make_spec

from automl.core import (
    Begun,
    Budget,
    Created,
    Ended,
    Proposed,
    SweepState,
    TrialState,
    parse_goals,
)
from workers.protocol import Ending, Outcome

DONE = TrialState.COMPLETED


def use_of(spec: Any) -> SweepState:
    state = SweepState()
    state.apply(Created(spec.to_dict()))
    return state


def begin(state: SweepState, at: float, slots: int) -> None:
    number = len(state.trials)
    state.apply(Proposed(number, {}, "test"))
    state.apply(Begun(number, 1, at, slots))


def end(state: SweepState, seconds: float, how: TrialState = DONE) -> None:
    outcome = Outcome(len(state.trials) - 1, 1, Ending(str(how)), {"loss": 1.0}, seconds=seconds)
    state.apply(Ended(outcome, how))


@pytest.mark.parametrize(
    ("budget", "now", "reason"),
    [
        (Budget(time=10.0), 9.9, ""),
        (Budget(time=10.0), 10.0, "the time of 10 s is over"),
        (Budget(worker_time=20.0), 10.9, ""),
        (Budget(worker_time=20.0), 11.0, "the worker time of 20 s is spent"),
    ],
)
def test_time_counts_on_every_slot_that_a_trial_takes(
    budget: Budget, now: float, reason: str
) -> None:
    use = use_of(make_spec(budget=budget))
    begin(use, 1.0, 2)
    assert use.busy_slots == 2
    assert use.reason_to_end(now) == reason


def test_ended_attempts_count_with_their_slots_and_earlier_runs_count_too() -> None:
    use = use_of(make_spec(budget=Budget(worker_time=100.0)))
    begin(use, 10.0, 2)
    end(use, 7.0)
    begin(use, 50.0, 3)
    end(use, 5.0)
    assert use.spent(60.0, 2) == 0.29
    assert use.busy_slots == 0
    assert use.trial_seconds == 6.0


def ended(seconds: float, state: TrialState = DONE, **changes: Any) -> SweepState:
    """A use that has seen one attempt of so many seconds, which ended at 50 s."""
    use = use_of(make_spec(**changes))
    begin(use, 50.0 - seconds, 1)
    end(use, seconds, state)
    return use


def test_a_trial_that_cannot_end_in_time_does_not_begin() -> None:
    use = ended(20.0, budget=Budget(time=80.0))
    assert use.reason_to_begin_none(60.0) == ""
    assert use.reason_to_begin_none(60.1) == (
        "19.9 s are left, and the shortest trial so far took 20 s"
    )
    assert use_of(make_spec(budget=Budget(time=80.0))).reason_to_begin_none(79.9) == ""


def test_the_shortest_slice_counts() -> None:
    use = ended(2.0, TrialState.PAUSED, budget=Budget(time=80.0), stopper="asha")
    assert use.reason_to_begin_none(77.0) == ""
    assert use.reason_to_begin_none(79.0)


def test_a_goal_with_a_deadline_needs_only_that() -> None:
    goals = parse_goals("minimize loss within 5s")
    use = ended(20.0, budget=Budget(time=80.0), goals=goals)
    assert use.reason_to_begin_none(75.0) == ""
    reason = "4 s are left, and the shortest trial so far took 20 s"
    assert use.reason_to_begin_none(76.0) == reason
    use = ended(3.0, budget=Budget(time=80.0), goals=goals)
    assert use.reason_to_begin_none(76.0) == ""


def test_another_specification_counts_for_what_has_happened() -> None:
    use = ended(2.0, TrialState.STOPPED, budget=Budget(time=80.0))
    use.spec = make_spec(budget=Budget(target=2.0))
    assert use.reason_to_end(0.0) == "trial 0 has reached the target 2"
