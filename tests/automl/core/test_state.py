"""The state of a sweep is the fold of its log, and so is what a snapshot of it goes on with."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace

import pytest
from objectives import make_spec

from automl.core import (
    Answered,
    Begun,
    Budget,
    Closed,
    Command,
    Created,
    Ended,
    Leased,
    Moved,
    Proposed,
    Snapshot,
    SpecChanged,
    SweepEvent,
    SweepState,
    TrialState,
    parse_goals,
)
from automl.errors import AutomlError, StoreError
from workers.protocol import Ending, Outcome, Report, Started, StopRequest

SPEC = make_spec(budget=Budget(trials=9, worker_time=1e6, target=0.01), stopper="asha")


def after(*events: SweepEvent) -> SweepState:
    state = SweepState()
    for number, event in enumerate((Created(SPEC.to_dict(), {"git": "abc"}), *events), start=1):
        state.apply(event, number)
    return state


def history(seed: int) -> list[SweepEvent]:
    """Random events that may follow each other, with commands in between."""
    rng, state = random.Random(seed), after()
    events: list[SweepEvent] = []
    for at in range(120):
        number = rng.randrange(len(state.trials) + 1)
        trial = state.trials[number] if number < len(state.trials) else None
        attempt = trial.attempts if trial else 1
        ending = rng.choice(list(Ending))
        outcome = Outcome(number, attempt, ending, {"loss": rng.random()}, seconds=rng.random())
        metrics = {"loss": rng.choice([rng.random(), math.nan])}
        event: SweepEvent = rng.choice(
            [
                Proposed(number, {"lr": rng.random()}, "bayes", at),
                Begun(number, attempt + 1, at, slots=rng.randrange(3)),
                Started(number, attempt, "host:1"),
                Report(number, attempt, at, at, metrics, float(at)),
                Report(number, attempt, at + 1, at, metrics, float(at)),
                Ended(outcome, TrialState(ending.value), at=at),
                Moved(number, rng.choice(list(TrialState)), "why", at, 0.5),
                Leased(number, attempt, "agent", 9.0, 99.0, rng.choice([None, *StopRequest])),
                Command(rng.choice(["ask", "tell", "stop"]), {"star": True}, number),
                Command("limits", {"lr": rng.choice([None, {"low": 0.1, "high": 0.2}])}),
                Answered(rng.randrange(1, 99), {}),
                SpecChanged(replace(SPEC, budget=Budget(trials=at + 1)).to_dict()),
                Closed("finished", "done", at=at),
            ]
        )
        try:
            state.apply(event, len(events) + 2)
        except AutomlError:
            continue
        events.append(event)
    return events


def test_the_reason_of_an_earlier_end_is_not_that_of_a_sweep_resumed_and_killed() -> None:
    state = after(Closed("finished", "its budget is used up"))
    assert Snapshot.of(state, "finished", 0.0).reason == "its budget is used up"
    state.apply(SpecChanged(replace(SPEC, budget=Budget(trials=30)).to_dict()), 3)
    assert Snapshot.of(state, "interrupted", 0.0).reason == ""


@pytest.mark.parametrize("seed", range(25))
def test_a_snapshot_goes_on_as_the_whole_log_does(seed: int) -> None:
    events = history(seed)
    middle = len(events) // 2
    restored = SweepState.from_dict(json.loads(json.dumps(after(*events[:middle]).to_dict())))
    for number, event in enumerate(events[middle:], start=middle + 2):
        restored.apply(event, number)
    whole = after(*events)
    assert json.dumps(restored.to_dict()) == json.dumps(whole.to_dict())


def test_finished_trials_keep_the_reports_that_their_values_come_from() -> None:
    reports = [Report(0, 1, i, i, {"loss": abs(i - 30) + 1.0}, float(i)) for i in range(100)]
    done = Ended(Outcome(0, 1, Ending.COMPLETED, {}), TrialState.COMPLETED)
    state = after(Proposed(0, {"lr": 0.1}, "bayes"), Begun(0, 1), *reports, done)
    kept = SweepState.from_dict(state.to_dict()).trials[0]
    assert [point.step for point in kept.reports] == [30, 99]
    running = SweepState.from_dict(after(Proposed(0, {}, ""), Begun(0, 1), *reports).to_dict())
    assert len(running.trials[0].reports) == 100


def test_a_snapshot_does_not_go_on_with_other_goals() -> None:
    state = SweepState.from_dict(after().to_dict())
    state.apply(SpecChanged(replace(SPEC, seed=8).to_dict()))
    other = replace(SPEC, goals=parse_goals("maximize bleu"))
    with pytest.raises(StoreError, match="other goals"):
        state.apply(SpecChanged(other.to_dict()))
    whole = after()
    whole.apply(SpecChanged(other.to_dict()))
    assert whole.spec.goals == other.goals


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
