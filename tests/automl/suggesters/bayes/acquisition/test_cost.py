"""Where time is the budget, what a trial costs counts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from automl.core.budget import Budget
from automl.core.goals import parse_goals
from automl.core.trial import Trial, TrialState
from automl.suggesters.bayes import BayesSuggester
from automl.suggesters.make import make
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


def bayes(**budget: Any) -> Any:
    return make("bayes", SPACE, parse_goals("minimize loss"), budget=Budget(**budget))


def test_with_a_budget_of_time_cheaper_trials_come_first() -> None:
    timed, untimed = (
        np.mean([math.log(params["size"]) for params in suggester.suggest(history(100.0), [], 6)])
        for suggester in (bayes(time=1000.0), bayes(trials=100))
    )
    assert timed < untimed - 0.5
    assert timed < math.log(3.0)


def test_cost_counts_less_towards_the_end_and_not_where_trials_run_out_first() -> None:
    def power(ended: float, **budget: Any) -> float:
        suggester = bayes(**budget)
        suggester.suggest(history(ended), [])
        return float(suggester.cost.power)

    assert power(100.0, time=1000.0) == 0.9
    assert power(900.0, time=1000.0) < 0.2
    assert power(100.0, time=1000.0, trials=20) == 0.0
    assert type(bayes(trials=20)) is BayesSuggester
