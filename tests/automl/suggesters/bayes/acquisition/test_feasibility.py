"""How failures enter the acquisition."""

from __future__ import annotations

import numpy as np
import torch

from automl.core.goals import Goal
from automl.core.trial import Trial, TrialState
from automl.suggesters.bayes import BayesSuggester
from automl.suggesters.bayes.acquisition.feasibility import (
    Feasibility,
    demanded_after,
    price_after,
)
from automl.suggesters.bayes.model.data import TrialReader
from automl.suggesters.bayes.model.surrogates import Surrogates
from automl.suggesters.bayes.policy import Policy
from search_spaces import Float, Space


def test_demanded_probability_follows_failures():
    asked = [demanded_after(overrun) for overrun in (-4.0, -1.0, 0.0, 1.0, 10.0)]
    assert asked == sorted(asked)
    assert demanded_after(-1e5) == asked[0], "of very many trials too"
    assert 0.2 < asked[0] < asked[1] < asked[2] < asked[3] < asked[4] < 1.0


def failing(number: int, params: dict, fails: bool) -> Trial:
    state = TrialState.FAILED if fails else TrialState.COMPLETED
    return Trial(
        number, params, state, {} if fails else {"loss": -params["x"]}, "crashed" if fails else None
    )


def edge_of_success(policy: Policy) -> Feasibility:
    """After twelve trials of which the upper half failed."""
    space, goals = Space(Float("x", 0.0, 1.0)), [Goal("loss")]
    x = np.linspace(0.02, 0.98, 12)
    trials = [failing(i, {"x": float(a)}, a > 0.5) for i, a in enumerate(x)]
    data = TrialReader(space, goals, [])(trials)
    surrogates = Surrogates(space, goals, (), 0)
    best = data.unit[surrogates.incumbents.best_rows(data)]
    return Feasibility.after(surrogates.failures(data), data.failed, best, policy)


def test_a_failure_is_risked_if_more_is_gained_than_it_costs():
    known = edge_of_success(Policy())
    unit = np.linspace(0.1, 0.9, 33)[:, None]
    probability = known.failures.log_probability(unit).exp()
    edge = int((probability - known.demanded + 0.1).abs().argmin())
    gains = torch.tensor([-8.0, -2.0, 3.0, 6.0], dtype=torch.float64)
    worth = torch.stack([known.weighed(gain.expand(len(unit)), unit) for gain in gains])
    assert probability[edge] < known.demanded < probability[0]
    assert (worth[:, 0] - gains - probability[0].log()).abs().max() < 1e-9, (
        "a safe candidate has the value of its gain"
    )
    assert worth[0, edge] < worth[0, 0] - 300, "nothing is risked for little"
    assert worth[3, edge] > worth[1, 0], "but for much"
    assert (worth[:, -1] < worth[:, 0]).all()
    assert 0 < price_after(-1e5) < price_after(0.0) < price_after(2.0) < price_after(1e5) < np.inf


def test_without_a_budget_no_probability_is_demanded_after():
    known, unit = edge_of_success(Policy(failure_budget=False)), np.linspace(0.1, 0.9, 9)[:, None]
    gain = torch.zeros(9, dtype=torch.float64)
    expected = known.failures.log_probability(unit)
    torch.testing.assert_close(known.weighed(gain, unit), expected)


def test_few_trials_fail_although_the_best_lies_at_the_edge():
    space = Space(Float("x", 0.0, 1.0), Float("y", 0.0, 1.0))
    suggester, history = BayesSuggester(space, [Goal("loss")]), []
    for i in range(40):
        (params,) = suggester.suggest(history, [])
        history.append(failing(i, params, fails=params["x"] + params["y"] > 0.8))
    assert sum(t.failure is not None for t in history) <= 8
    assert min(t.metrics.get("loss", 0.0) for t in history) < -0.75


def test_failures_by_chance_do_not_stop_the_search():
    space = Space(Float("x", 0.0, 1.0), Float("y", 0.0, 1.0))
    rng, suggester, history = np.random.default_rng(0), BayesSuggester(space, [Goal("loss")]), []
    for i in range(30):
        (params,) = suggester.suggest(history, [])
        history.append(failing(i, params, fails=rng.random() < 0.25))
    assert min(t.metrics.get("loss", 0.0) for t in history) < -0.9
