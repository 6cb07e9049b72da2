"""The state of a sweep is the fold of its log, and so is what a snapshot of it goes on with."""

from __future__ import annotations

from dataclasses import replace

import pytest
from objectives import make_spec

from automl.core import (
    Answered,
    Budget,
    Closed,
    Command,
    Created,
    Proposed,
    Snapshot,
    SpecChanged,
    SweepEvent,
    SweepState,
)
from automl.errors import StoreError

SPEC = make_spec(budget=Budget(trials=9, worker_time=1e6, target=0.01), stopper="asha")


def after(*events: SweepEvent) -> SweepState:
    state = SweepState()
    for number, event in enumerate((Created(SPEC.to_dict(), {"git": "abc"}), *events), start=1):
        state.apply(event, number)
    return state


def test_the_reason_of_an_earlier_end_is_not_that_of_a_sweep_resumed_and_killed() -> None:
    state = after(Closed("finished", "its budget is used up"))
    assert Snapshot.of(state, "finished", 0.0).reason == "its budget is used up"
    state.apply(SpecChanged(replace(SPEC, budget=Budget(trials=30)).to_dict()), 3)
    assert Snapshot.of(state, "interrupted", 0.0).reason == ""


def test_a_sweep_that_goes_on_is_no_longer_finished() -> None:
    closed = after(Closed("finished", "its budget is used up"))
    assert (closed.closed, closed.reason) == ("finished", "its budget is used up")
    closed.apply(Command("limits", {"lr": None}), 9)
    assert closed.closed == "finished"
    closed.apply(Proposed(0, {"lr": 0.1}, "enqueued"))
    assert (closed.closed, closed.reason) == ("interrupted", "")


def test_requests_wait_for_an_answer_or_a_trial() -> None:
    state = after(*(Command(kind, {}) for kind in ("ask", "enqueue", "stop", "resume_trial")))
    assert (list(state.requests), state.stop_number) == ([2, 3, 5], 4)
    state.apply(Proposed(0, {"lr": 0.1}, "enqueued", command=3))
    state.apply(Answered(2, {}))
    assert list(state.requests) == [5]


def test_numbers_of_trials_have_no_gaps_and_a_log_begins_with_its_specification() -> None:
    with pytest.raises(StoreError, match="the next trial of the sweep is 0, got 1"):
        after(Proposed(1, {}, "bayes"))
    with pytest.raises(StoreError, match="does not begin with its specification"):
        SweepState().apply(Proposed(0, {}, "bayes"))


@pytest.mark.parametrize(("limit", "left"), [(None, 2**31), (3, 2), (1, 0), (0, 0)])
def test_how_many_trials_are_left(limit: int | None, left: int) -> None:
    state = after(Proposed(0, {"lr": 0.1}, "bayes"))
    state.spec = replace(SPEC, budget=Budget(trials=limit))
    assert state.trials_left == left
