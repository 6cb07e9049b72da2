"""Numbers and sparklines in few characters."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from automl.core import Goal, Snapshot, Trial, TrialState, parse_constraints, text


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


def test_an_infeasible_trial_says_why() -> None:
    snapshot = Snapshot("toy", "finished", [], (Goal("loss"),), parse_constraints("size <= 10"))
    done = Trial(0, {}, TrialState.COMPLETED, {"loss": 1.0, "size": 12.0})
    assert text.state_of(done, snapshot) == "infeasible: size 12 > 10"
    assert text.state_of(replace(done, metrics={"loss": 1.0}), snapshot) == "infeasible: no size"
    fits = replace(done, metrics={"loss": 1.0, "size": 9.0})
    assert text.state_of(fits, snapshot) == "completed"


def test_control_characters_are_escaped_as_in_python_and_json() -> None:
    raw = "a\x1b]0;x\x07\n\t\r\x7f\x9b\u202e\ud800é<>"
    assert text.printable(raw) == r"a\u001b]0;x\u0007\n\t\r\u007f\u009b\u202e\ud800é<>"
    assert json.loads(f'"{text.printable(raw)}"') == raw
    assert text.printable("a\tb\nc", keep="\n") == "a\\tb\nc"
    assert text.configuration({"a\n": "b\x1b"}) == r"a\n=b\u001b"
