"""Numbers, durations and sparklines in few characters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from automl.core import text
from automl.core.goals import Goal, parse_constraints
from automl.core.snapshot import Snapshot
from automl.core.trial import Trial, TrialState


def ended(number: int, bleu: float, at: float) -> Trial:
    return Trial(number, {}, TrialState.COMPLETED, {"bleu": bleu}, ended=at)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0s"),
        (59.4, "59s"),
        (59.6, "1m 00s"),
        (3599, "59m 59s"),
        (3600, "1h 00m"),
        (90000, "1d 01h"),
    ],
)
def test_durations_are_short(seconds: float, expected: str) -> None:
    assert text.duration(seconds) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.00012345, "0.000123"),
        (1e-7, "1e-7"),
        (0.0, "0"),
        (23.456, "23.46"),
        (12345.6, "12346"),
        (1e12, "1e12"),
    ],
)
def test_numbers_are_short(value: float, expected: str) -> None:
    assert text.number(value) == expected


def test_a_sparkline_rises_as_the_goal_improves() -> None:
    assert text.sparkline([1.0, 2.0, 3.0], 10, maximize=True) == "▁▅█"
    assert text.sparkline([3.0, 2.0, 1.0], 10, maximize=False) == "▁▅█"
    assert text.sparkline([5.0], 10, maximize=True) == "▅"
    assert len(text.sparkline([float(i) for i in range(100)], 20, maximize=True)) == 20
    assert text.sparkline([], 10, maximize=True) == ""


def test_the_best_so_far_follows_the_order_of_ends() -> None:
    trials = [ended(0, 20.0, 99.0), ended(1, 10.0, 60.0), ended(2, 15.0, 90.0)]
    shown = Snapshot("s", "running", trials, (Goal("bleu", maximize=True),))
    assert text.best_so_far(shown) == [10.0, 15.0, 20.0]


def test_different_configurations_look_different() -> None:
    many = [{"lr": 0.12345, "n": 1}, {"lr": 0.12346, "n": 1}, {"lr": 0.5, "n": 1}]
    shown = text.configurations([*many, many[0]])
    assert shown == ["lr=0.12345  n=1", "lr=0.12346  n=1", "lr=0.5  n=1", "lr=0.12345  n=1"]


def test_an_infeasible_trial_says_why() -> None:
    snapshot = Snapshot("toy", "finished", [], (Goal("loss"),), parse_constraints("size <= 10"))
    done = Trial(0, {}, TrialState.COMPLETED, {"loss": 1.0, "size": 12.0})
    assert text.state_of(done, snapshot) == "infeasible: size 12 > 10"
    assert text.state_of(replace(done, metrics={"loss": 1.0}), snapshot) == "infeasible: no size"
    fits = replace(done, metrics={"loss": 1.0, "size": 9.0})
    assert text.state_of(fits, snapshot) == "completed"
