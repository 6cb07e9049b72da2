"""The sequential t-test of `automl ab`: its errors, its interval, and extreme differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from automl.errors import UsageError
from automl.workflows.paired_test import PairedTest, _log_ratio


def simulated(mean: float, comparisons: int = 1500) -> tuple[list[str], float, float]:
    """The answers, the mean number of pairs, and the share of intervals that hold the mean."""
    test, rng, answers, pairs, held = PairedTest(), np.random.default_rng(1), [], [], 0
    for _ in range(comparisons):
        differences = list(rng.normal(mean, 1.0, test.most_pairs))
        count = 2
        while (answer := test.answer(differences[:count])) == "not known" and count < 30:
            count += 1
        answers.append(answer)
        pairs.append(count)
        low, high = test.interval(differences[:count])
        held += low <= mean <= high
        assert (low > 0, high < 0) == (answer == "better", answer == "worse")
    return answers, float(np.mean(pairs)), held / comparisons


def test_without_a_difference_few_are_called_better_or_worse() -> None:
    answers, pairs, held = simulated(0.0)
    assert answers.count("better") <= 0.065 * len(answers)  # 0.05, and its error in 1,500
    assert answers.count("worse") <= 0.065 * len(answers)
    assert answers.count("no difference") >= 0.87 * len(answers)
    assert held >= 0.88
    assert pairs < 7.7


def test_an_effect_of_one_deviation_is_found_with_few_runs() -> None:
    answers, pairs, held = simulated(1.0)
    assert answers.count("better") >= 0.88 * len(answers)  # 0.9, and its error
    assert answers.count("worse") == 0
    assert pairs <= 0.72 * 11  # a t-test of fixed size needs 11
    assert held >= 0.9


def test_the_likelihood_ratio_is_that_of_the_noncentral_t() -> None:
    for count, t in ((2, 0.5), (5, 1.7), (12, -2.0), (40, 3.0)):
        share = t / math.sqrt(t * t + count - 1)
        delta = 0.8 * math.sqrt(count)
        expected = stats.nct.pdf(t, count - 1, delta) / stats.t.pdf(t, count - 1)
        assert _log_ratio(count, 0.8, np.array([share]))[0] == pytest.approx(
            math.log(expected), abs=1e-3
        )


def test_the_unit_of_the_metric_does_not_matter() -> None:
    differences = [0.3, 0.1, 0.5, 0.2, 0.4]
    assert PairedTest().answer(differences) == "better"
    for unit in (1e-200, 1e-9, 1e9, 1e200):
        assert PairedTest().answer([unit * one for one in differences]) == "better"
        assert PairedTest().answer([-unit * one for one in differences]) == "worse"


def test_programs_that_always_print_the_same_need_four_pairs() -> None:
    test = PairedTest()
    assert [test.answer([0.1] * count) for count in range(5)] == ["not known"] * 4 + ["better"]
    assert test.interval([0.1] * 4) == pytest.approx((0.1, 0.1))
    assert test.answer([0.0] * 3) == "no difference"
    assert test.interval([0.1]) == (-math.inf, math.inf)


@pytest.mark.parametrize(
    ("alpha", "effect"), [(0.0, 1.0), (0.5, 1.0), (math.nan, 1.0), (0.05, 0.01), (0.05, math.inf)]
)
def test_arguments_out_of_range_are_one_clear_error(alpha: float, effect: float) -> None:
    with pytest.raises(UsageError, match="is from"):
        PairedTest(alpha, effect)


def test_a_smaller_effect_takes_more_pairs() -> None:
    assert PairedTest(effect=0.5).most_pairs == 4 * PairedTest().most_pairs
    differences = list(np.random.default_rng(2).normal(0.0, 1.0, 40))
    count = next(n for n in range(2, 41) if PairedTest().answer(differences[:n]) != "not known")
    assert PairedTest(effect=0.5).answer(differences[:count]) == "not known"
