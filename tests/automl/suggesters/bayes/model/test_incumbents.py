"""The best trials, and when one was better."""

from __future__ import annotations

import numpy as np
import pytest

from automl.core.goals import Goal
from automl.core.trial import Trial, TrialState
from automl.suggesters.bayes.model.data import TrialData, TrialReader
from automl.suggesters.bayes.model.incumbents import Incumbents, front
from automl.suggesters.bayes.model.surrogates import Surrogates
from search_spaces import Float, Space


def data_of(space: Space, trials: list[Trial], *metrics: str) -> TrialData:
    return TrialReader(space, [Goal(metric) for metric in metrics or ("loss",)], [])(trials)


@pytest.mark.parametrize("goals", [2, 3])
def test_no_other_row_dominates_the_front(goals):
    losses = np.random.default_rng(goals).integers(0, 6, (60, goals)).astype(float)
    expected = [
        i
        for i, row in enumerate(losses)
        if not any(
            (other <= row).all() and ((other < row).any() or j < i)
            for j, other in enumerate(losses)
            if j != i
        )
    ]
    assert front(losses).tolist() == expected
    assert front(losses[:0]).tolist() == []


def test_a_new_point_of_the_front_is_progress_and_each_takes_its_turn():
    space = Space(Float("x", 0.0, 1.0))

    def both(number: int, x: float, more: float = 0.0) -> Trial:
        return Trial(
            number, {"x": x}, TrialState.COMPLETED, {"first": x + more, "second": 1 - x + more}
        )

    trials = [both(0, 0.2), both(1, 0.8), both(2, 0.5), both(3, 0.55, 0.5), both(4, 0.1, 0.5)]
    incumbents, metrics = Incumbents(), ("first", "second")
    data = data_of(space, trials, *metrics)
    assert incumbents.last_progress(data) == 2, (
        "neither of the last two, the best of the first goal is trial 0"
    )
    leaders = [incumbents.best_rows(data_of(space, trials[:n], *metrics))[0] for n in (3, 4, 5)]
    assert sorted(leaders) == [0, 1, 2]


def test_under_noise_the_surrogate_says_when_there_was_progress():
    """Losses fall with x, but for noise; an early one was lucky."""
    space, rng = Space(Float("x", 0.0, 1.0)), np.random.default_rng(0)
    x = np.linspace(0.0, 0.9, 30)
    losses = 2.0 - 2.0 * x + 0.3 * rng.standard_normal(30)
    losses[10] = -0.5
    trials = [
        Trial(i, {"x": float(a)}, TrialState.COMPLETED, {"loss": float(b)})
        for i, (a, b) in enumerate(zip(x, losses, strict=True))
    ]
    data = data_of(space, trials)
    smoothed = Surrogates(space, [Goal("loss")], (), 0).fit(data).smoothed(len(data))
    assert Incumbents().last_progress(data) == 10
    assert Incumbents().last_progress(data, smoothed) > 20
