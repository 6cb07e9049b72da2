"""How failures enter the acquisition."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from automl.core.goals import Goal
from automl.core.trial import Trial, TrialState
from automl.suggesters.bayes import BayesSuggester
from automl.suggesters.bayes.acquisition.feasibility import Feasibility, accepted_risk
from automl.suggesters.bayes.model.data import TrialReader
from automl.suggesters.bayes.model.surrogates import Surrogates
from automl.suggesters.bayes.policy import Policy
from search_spaces import Float, Space


def risk_after(*later: bool) -> float:
    """After a design of five trials, the first of which failed."""
    return accepted_risk(np.array([True, False, False, False, False, *later]))


def test_the_accepted_risk_follows_failures():
    risks = [risk_after(*[True] * n) for n in (6, 2, 1, 0)]
    assert risks == sorted(risks)
    assert 0.0 < risks[0] < risks[1] < risks[2] < risks[3] < 0.5
    assert risk_after(*[False] * 20) > risks[3], "it rises as trials succeed"
    one_in_25 = risk_after(*([True] + [False] * 24) * 4)
    assert one_in_25 == pytest.approx(risks[3]), "at the target it stays"
    assert risk_after(*[False] * 100_000) == risk_after(*[False] * 1000) < 1.0


def test_failures_before_two_successes_teach_no_caution():
    assert accepted_risk(np.array([True] * 20 + [False, False])) == risk_after()


def failing(number: int, params: dict, fails: bool) -> Trial:
    state = TrialState.FAILED if fails else TrialState.COMPLETED
    return Trial(
        number, params, state, {} if fails else {"loss": -params["x"]}, "crashed" if fails else None
    )


def edge_of_success(policy: Policy) -> Feasibility:
    """After twelve trials of which the highest failed."""
    space, goals = Space(Float("x", 0.0, 1.0)), [Goal("loss")]
    x = np.linspace(0.02, 0.98, 12)
    trials = [failing(i, {"x": float(a)}, a > 0.8) for i, a in enumerate(x)]
    data = TrialReader(space, goals, [])(trials)
    surrogates = Surrogates(space, goals, (), 0)
    return Feasibility.after(surrogates.failures(data), data.failed, policy)


def test_a_candidate_below_the_demand_is_worth_nothing():
    known = edge_of_success(Policy())
    unit = np.linspace(0.1, 0.9, 33)[:, None]
    probability = known.failures.log_probability(unit).exp()
    worth = 6.0 + known(unit)
    safe = probability >= known.demanded
    assert 0 < int(safe.sum()) < 33
    torch.testing.assert_close(worth[safe], 6.0 + probability[safe].log())
    assert worth[probability < known.demanded - 0.05].max() < worth[safe].min() - 100


def test_without_a_budget_no_probability_is_demanded_after():
    known, unit = edge_of_success(Policy(failure_budget=False)), np.linspace(0.1, 0.9, 9)[:, None]
    expected = known.failures.log_probability(unit)
    torch.testing.assert_close(known(unit), expected)


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
