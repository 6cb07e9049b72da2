"""The exam of the suggester: its problems are sound, and apart from those of the exercise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.suggesters import examine, problems
from benchmarks.suggesters.scoring import scales

EXAM = problems.names(exam=True)


def test_the_exam_shares_no_problem_with_the_exercise() -> None:
    assert len(EXAM) >= 14
    assert not set(EXAM) & set(problems.names())
    assert set(EXAM) | set(problems.names()) == set(problems.names(exam=None))


@pytest.mark.parametrize("name", EXAM)
def test_a_problem_of_the_exam_can_be_solved(name: str) -> None:
    one, scale = problems.load(name), scales()[name]
    drawn = one.space.sample(np.random.default_rng(0), 200)
    losses = [truth[0] for params in drawn if (truth := one.truth(params)) is not None]
    assert len(losses) >= 60
    assert all(map(math.isfinite, losses))
    assert scale.best <= min(losses) + 1e-9
    assert scale.best < scale.five_random


def test_without_rows_nothing_is_claimed() -> None:
    assert all(claim.holds is not True for claim in examine.claims([], EXAM))
