"""`automl ab`: its pairs, failures, records, and the errors of its sequential t-test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from automl.core import Goal, ReportPoint, Snapshot, Trial, TrialState
from automl.workflows.ab import PairedTest, compared, gains, side_of

GOAL = Goal.parse("minimize loss")


def trial(number: int, *losses: float, **fields: Any) -> Trial:
    """A trial that has reported these losses at steps 1, 2, ..."""
    reports = [ReportPoint(step, {"loss": loss}, 0.0) for step, loss in enumerate(losses, 1)]
    state = fields.pop("state", TrialState.COMPLETED)
    metrics = {"loss": losses[-1]} if losses else {}
    return Trial(number, {}, state, metrics, reports=reports, attempts=1, **fields)


def answer(trials: Sequence[Trial]) -> Any:
    snapshot = Snapshot("ab", "finished", tuple(trials), (GOAL,))
    return compared(snapshot, PairedTest())


def runs(a: Sequence[float], b: Sequence[float]) -> list[Trial]:
    """Trials of these final losses, by pair."""
    sides = {"A": iter(a), "B": iter(b)}
    return [trial(number, next(sides[side_of(number)])) for number in range(2 * len(a))]


def failed(number: int) -> Trial:
    return trial(number, state=TrialState.FAILED, failure="crashed", message="it broke")


def test_every_other_pair_begins_with_b() -> None:
    assert "".join(map(side_of, range(8))) == "ABBAABBA"
    assert gains(runs([1, 2, 3], [4, 6, 8]), GOAL) == [-3, -4, -5]


def test_the_effect_is_the_gain_of_b() -> None:
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
