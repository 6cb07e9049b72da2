"""`automl ab`: its pairs, failures, records, and the errors of its sequential t-test."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from automl.core import Goal, Snapshot, Trial, TrialState
from automl.workflows.ab import PairedTest, compared, gains, side_of

GOAL = Goal.parse("minimize loss")


def answer(trials: Sequence[Trial]) -> Any:
    return compared(Snapshot("ab", "finished", tuple(trials), (GOAL,)), PairedTest())


def runs(a: Sequence[float], b: Sequence[float]) -> list[Trial]:
    """Trials of these losses, by pair."""
    sides = {"A": iter(a), "B": iter(b)}
    losses = [{"loss": next(sides[side_of(number)])} for number in range(2 * len(a))]
    done = TrialState.COMPLETED
    return [Trial(number, {}, done, one, attempts=1) for number, one in enumerate(losses)]


def failed(number: int) -> Trial:
    return Trial(number, {}, TrialState.FAILED, {}, "crashed", attempts=1, message="it broke")


def test_every_other_pair_begins_with_b_and_the_effect_is_its_gain() -> None:
    assert "".join(map(side_of, range(8))) == "ABBAABBA"
    assert gains(runs([1, 2, 3], [4, 6, 8]), GOAL) == [-3, -4, -5]
    found = answer(runs([0.5, 0.6, 0.4, 0.5, 0.5], [0.4, 0.49, 0.31, 0.39, 0.4]))
    assert found.answer == "better"
    assert found.effect == pytest.approx(0.102)
    assert found.interval[0] > 0
    assert found.to_dict().keys() == {"answer", "effect", "interval", "runs"}
    assert str(found).startswith("B is better than A by 0.102 in loss (90% interval of the gain: ")


def test_failures_of_b_alone_are_never_in_its_favour() -> None:
    good = runs([0.5, 0.6, 0.4, 0.5, 0.5, 0.5], [0.4, 0.49, 0.31, 0.39, 0.4, 0.4])
    assert answer(good).answer == "better"
    assert answer([*good[:9], failed(9), *good[10:]]).answer == "not known"
    worse = answer([failed(n) if n in (1, 2, 5) else one for n, one in enumerate(good)])
    assert (worse.answer, worse.reason) == ("worse", "B failed 3 times: it broke")
    neither = answer([failed(n) if n in (0, 3, 4) else one for n, one in enumerate(good)])
    assert (neither.answer, neither.reason) == ("not known", "A failed 3 times: it broke")


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


def test_errors_are_as_rare_as_promised_and_few_runs_are_enough() -> None:
    answers, pairs, held = simulated(0.0)
    assert answers.count("better") <= 0.065 * len(answers)  # 0.05, and its error in 1,500
    assert answers.count("worse") <= 0.065 * len(answers)
    assert answers.count("no difference") >= 0.87 * len(answers)
    assert held >= 0.88
    assert pairs < 7.7
    answers, pairs, held = simulated(1.0)  # an effect of one deviation
    assert answers.count("better") >= 0.88 * len(answers)  # 0.9, and its error
    assert answers.count("worse") == 0
    assert pairs <= 0.72 * 11  # a t-test of fixed size needs 11
    assert held >= 0.9
