"""Goals and constraints as texts: the ledger keeps them so, and they read back the same."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from automl.core import Constraint, Goal, parse_duration

SECONDS = st.floats(min_value=0, exclude_min=True, allow_infinity=False)


@given(SECONDS)
@example(12 * 86400.0)
@example(1e-5)
@example(1e9)
@example(1 / 3)
def test_a_goal_reads_back_the_same(seconds: float) -> None:
    goal = Goal("bleu", maximize=True, within=seconds)
    assert Goal.parse(str(goal)) == goal


@pytest.mark.parametrize("within", ["12d", "0.00001", "1e-5s", "1e9s", "1d1e+2s", "1h30m", "90"])
def test_a_goal_as_a_user_gives_it_reads_back_the_same(within: str) -> None:
    goal = Goal.parse(f"minimize loss at the end within {within}")
    assert goal.within == parse_duration(within)
    assert Goal.parse(str(goal)) == goal


@given(st.floats(allow_nan=False, allow_infinity=False), st.booleans())
@example(1.0368e6, True)
@example(1e-5, False)
@example(1e9, True)
def test_a_constraint_reads_back_the_same(bound: float, upper: bool) -> None:
    constraint = Constraint("peak_memory_bytes", bound, upper)
    assert Constraint.parse(str(constraint)) == constraint


@pytest.mark.parametrize(
    ("text", "bound"), [("300MB", 3e8), ("1.5GB", 1.5e9), ("2kB", 2e3), ("8e9", 8e9)]
)
def test_a_constraint_takes_an_amount_of_memory(text: str, bound: float) -> None:
    assert Constraint.parse(f"peak_memory_bytes <= {text}").bound == bound
