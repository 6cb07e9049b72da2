"""If time is limited, the cost of a trial counts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from automl.core.goals import parse_goals
from automl.core.resources import Budget
from automl.core.trial import Trial, TrialState
from automl.suggesters.base import SearchContext, Suggester
from automl.suggesters.bayes import BayesSuggester
from automl.suggesters.bayes.acquisition.cost import CostModel
from automl.suggesters.domain import Domain
from search_spaces import Float, Space

SPACE = Space(Float("x", 0.0, 1.0), Float("size", 1.0, 30.0, log=True, affects={"speed"}))


def history(ended: float) -> list[Trial]:
    """Twelve trials; the size costs as much as it is, and gives nothing."""
    rng = np.random.default_rng(0)
    found = []
    for number in range(12):
        params = {"x": rng.random(), "size": float(30 ** rng.random())}
        done = {"seconds": params["size"], "ended": ended * (number + 1) / 12}
        found.append(
            Trial(number, params, TrialState.COMPLETED, {"loss": (params["x"] - 0.7) ** 2}, **done)
        )
    return found


def bayes(**budget: Any) -> Suggester:
    context = SearchContext(Domain(SPACE), budget=Budget(**budget))
    return BayesSuggester(SPACE, parse_goals("minimize loss"), context=context)


@pytest.mark.parametrize("count", [6, 16])
def test_with_a_budget_of_time_cheaper_trials_come_first(count: int) -> None:
    timed, untimed = (
        np.mean([math.log(p["size"]) for p in suggester.suggest(history(100.0), [], count)])  # type: ignore[arg-type]
        for suggester in (bayes(time=1000.0), bayes(trials=100))
    )
    assert timed < untimed - 0.5
    assert timed < math.log(3.0)


def test_cost_counts_less_towards_the_end_and_not_where_trials_run_out_first() -> None:
    def power(ended: float, **budget: Any) -> float:
        return CostModel(SPACE, Budget(**budget), seed=0).power(history(ended))

    assert power(100.0, time=1000.0) == 0.9
    assert power(900.0, time=1000.0) < 0.2
    assert power(100.0, time=1000.0, trials=20) == 0.0
    assert bayes(trials=20).suggest(history(100.0), []) == bayes().suggest(history(100.0), [])
