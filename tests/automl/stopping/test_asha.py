"""ASHA without pausing, its levels and its options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

import automl
from automl.core.goals import parse_goals
from automl.core.trial import ReportPoint, Trial, TrialState
from automl.stopping import STOPPERS
from automl.stopping.base import Decision, Stopper
from search_spaces import Float, Space

SPACE = Space(Float("x", 0.0, 1.0))


def make(name: str = "asha", **options: Any) -> Stopper:
    return STOPPERS.get(name)(parse_goals("minimize loss"), **options)


def report(stopper: Stopper, number: int, losses: Sequence[float], first_step: int = 1) -> Decision:
    """The decision after the last of some reports of a trial."""
    points = tuple(
        ReportPoint(step, {"loss": loss}, float(step))
        for step, loss in enumerate(losses, start=first_step)
    )
    trial = replace(Trial(number, {}, TrialState.RUNNING, attempts=1), reports=points)
    stopper.observe(trial)
    return stopper.decide(trial, [])


@pytest.mark.parametrize("name", ["asha", "hyperband"])
def test_without_pausing_the_leader_of_a_rung_always_goes_on(name: str) -> None:
    stopper = make(name, can_pause=False)
    losses = [9.0, 8.0, 10.0, 7.0, 6.0, 11.0, 5.0]
    best = float("inf")
    for number, loss in enumerate(losses):
        decision = report(stopper, number, [loss])
        if loss < best:
            assert decision.action == "continue", decision.reason
        best = min(best, loss)


def test_without_pausing_the_others_stop_and_the_reason_is_true() -> None:
    stopper = make(can_pause=False)
    assert report(stopper, 0, [1.0]).action == "continue"
    assert report(stopper, 1, [2.0]) == Decision("stop", "asha: 2 of 2 at 1, the best 1 go on")


@pytest.mark.parametrize("name", ["asha", "hyperband"])
def test_a_retry_is_judged_by_its_own_reports(name: str) -> None:
    """The worker is lost after the attempt has reached the third step, with a poor value."""
    stopper = make(name, can_pause=False, grace=1)
    lost = [ReportPoint(step, {"loss": 0.9}, step, 1, step) for step in (1, 2, 3)]
    retry = [ReportPoint(step, {"loss": 0.1}, step, 2, step) for step in (1, 2, 3)]
    report(stopper, 0, [0.5])
    report(stopper, 0, [0.5, 0.4, 0.3])

    def decision(attempt: int, points: Sequence[ReportPoint]) -> Decision:
        trial = replace(Trial(2, {}, TrialState.RUNNING, attempts=attempt), reports=points)
        stopper.observe(trial)
        return stopper.decide(trial, [])

    assert decision(1, lost).action == "stop"
    assert decision(2, retry[:1]) == Decision("continue")
    assert decision(2, retry) == Decision("continue")


def test_levels_of_steps_that_begin_at_0_are_whole_steps() -> None:
    stopper = make(can_pause=True)
    wait = [report(stopper, number, [2.0 + number], first_step=0) for number in range(3)]
    assert {decision.action for decision in wait} == {"continue"}, "step 0 is not compared"
    for number in range(3):
        last = report(stopper, number, [2.0 + number, 1.0 + number], first_step=0)
    assert last == Decision("pause", "asha: 3 of 3 at 1, the best 1 go on")
    last = report(stopper, 0, [2.0, 1.0, 0.9, 0.8], first_step=0)
    assert last == Decision("pause", "asha: 1 of 1 at 3, too few to choose from yet")


def test_grace_and_factor_make_the_levels() -> None:
    stopper = make(grace=5, factor=2, can_pause=True)
    for number in range(2):
        assert report(stopper, number, [1.0 + number] * 4).action == "continue"
        decision = report(stopper, number, [1.0 + number] * 5)
    assert decision == Decision("pause", "asha: 2 of 2 at 5, the best 1 go on")
    assert report(stopper, 0, [1.0] * 10).reason.startswith("asha: 1 of 1 at 10,")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grace": 0}, "grace of stopper 'asha' must be above 0 and finite, got 0"),
        ({"grace": float("inf")}, "grace of stopper 'asha' must be above 0 and finite, got inf"),
        ({"factor": 1}, "factor of stopper 'asha' must be at least 2, got 1"),
        ({"brackets": 0}, "brackets of stopper 'asha' must be at least 1, got 0"),
    ],
)
def test_an_option_out_of_its_range_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(automl.UsageError, match=message):
        make(**options)
