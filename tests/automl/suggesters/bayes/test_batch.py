"""Many suggestions at once, and suggestions beside very many pending trials."""

from __future__ import annotations

import numpy as np
import pytest

from automl.core.goals import Goal
from automl.core.trial import Trial, TrialState
from automl.suggesters.base import SearchContext
from automl.suggesters.bayes import BayesSuggester
from automl.suggesters.bayes.suggester import MAX_PENDING
from automl.suggesters.domain import Domain
from search_spaces import Choice, Float, Int, Space

SPACE = Space(
    Float("x", 0.0, 1.0),
    Float("y", 1e-4, 1.0, log=True),
    Choice("kind", ["a", "b", "c"]),
    Int("depth", 1, 4, when={"kind": "b"}),
    constraints=["x + y <= 1.5"],
)


def loss(params: dict) -> float:
    return (
        (params["x"] - 0.3) ** 2 + 0.1 * (np.log10(params["y"]) + 2) ** 2 + (params["kind"] != "b")
    )


def trials(
    count: int, seed: int, first: int = 0, state: TrialState = TrialState.COMPLETED
) -> list[Trial]:
    drawn = SPACE.sample(np.random.default_rng(seed), count)
    done = state is TrialState.COMPLETED
    return [
        Trial(first + i, p, state, {"loss": loss(p)} if done else {}) for i, p in enumerate(drawn)
    ]


@pytest.mark.parametrize(
    ("pending", "count"), [(0, 30), (MAX_PENDING + 50, 30), (MAX_PENDING + 50, 1)]
)
def test_many_at_once_are_new_legal_good_and_far_from_each_other(pending: int, count: int) -> None:
    history, waiting = trials(60, 0), trials(pending, 1, 60, TrialState.RUNNING)
    found = BayesSuggester(SPACE, [Goal("loss")]).suggest(history, waiting, count)
    keys = {SPACE.key(params) for params in found}
    assert len(keys) == len(found) == count
    assert not keys & {SPACE.key(trial.params) for trial in [*history, *waiting]}
    assert all(SPACE.legal(params) for params in found)
    assert np.median([loss(params) for params in found]) < np.quantile(
        [loss(trial.params) for trial in history], 0.2
    )
    if count > 1:
        unit = SPACE.encode(found)[:, :2]
        distances = np.abs(unit[:, None] - unit[None]).max(-1) + np.eye(count)
        assert np.median(distances.min(1)) > 0.005


def test_the_users_prior_counts_in_a_batch() -> None:
    def distance(prior: dict) -> float:
        context = SearchContext(Domain(SPACE), prior)
        suggester = BayesSuggester(SPACE, [Goal("loss")], context=context)
        found = suggester.suggest(trials(6, 0), [], 16)
        return float(np.mean([abs(params["x"] - 0.8) for params in found]))

    assert distance({"x": {"at": 0.8, "spread": 0.05}}) < 0.7 * distance({})
