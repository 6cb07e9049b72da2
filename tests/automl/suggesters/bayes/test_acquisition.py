"""The terms of the acquisition."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from botorch import fit_gpytorch_mll
from botorch.acquisition.analytic import LogExpectedImprovement
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.models import SingleTaskGP
from botorch.sampling.get_sampler import get_sampler
from gpytorch.mlls import ExactMarginalLogLikelihood

from automl.core.goals import Goal, parse_goals
from automl.core.resources import Budget
from automl.core.trial import Trial, TrialState
from automl.suggesters.base import SearchContext, Suggester
from automl.suggesters.bayes import BayesSuggester
from automl.suggesters.bayes.acquisition import Acquisition, accepted_risk, cost_power
from automl.suggesters.bayes.candidates import NUM_DESIGN
from automl.suggesters.bayes.data import TrialReader
from automl.suggesters.bayes.surrogates import Surrogates
from automl.suggesters.domain import Domain
from search_spaces import Choice, Float, Space


def risk_after(*later: bool) -> float:
    """After a design, the first of which failed."""
    return accepted_risk(np.array([True, *[False] * (NUM_DESIGN - 1), *later]))


def test_the_accepted_risk_follows_failures():
    risks = [risk_after(*[True] * n) for n in (6, 2, 1, 0)]
    assert risks == sorted(risks)
    assert 0.0 < risks[0] < risks[1] < risks[2] < risks[3] < 0.5
    assert risk_after(*[False] * 20) > risks[3], "it rises as trials succeed"
    one_in_25 = risk_after(*([True] + [False] * 24) * 4)
    assert one_in_25 == pytest.approx(risks[3]), "at the target it stays"
    assert risk_after(*[False] * 100_000) == risk_after(*[False] * 1000) < 1.0


def failing(number: int, params: dict, fails: bool) -> Trial:
    state = TrialState.FAILED if fails else TrialState.COMPLETED
    return Trial(
        number, params, state, {} if fails else {"loss": -params["x"]}, "crashed" if fails else None
    )


def test_few_trials_fail_although_the_best_lies_at_the_edge():
    space = Space(Float("x", 0.0, 1.0), Float("y", 0.0, 1.0))
    suggester, history = BayesSuggester(space, [Goal("loss")]), []
    for i in range(30):
        (params,) = suggester.suggest(history, [])
        history.append(failing(i, params, fails=params["x"] + params["y"] > 0.8))
    assert sum(t.failure is not None for t in history) <= 6
    assert min(t.metrics.get("loss", 0.0) for t in history) < -0.75


SPACE = Space(Float("x", 0.0, 1.0), Float("size", 1.0, 30.0, log=True, affects={"speed"}))


def timed(ended: float) -> list[Trial]:
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


def test_with_a_budget_of_time_cheaper_trials_come_first() -> None:
    limited, unlimited = (
        np.mean([math.log(p["size"]) for p in suggester.suggest(timed(100.0), [], 6)])  # type: ignore[arg-type]
        for suggester in (bayes(time=1000.0), bayes(trials=100))
    )
    assert limited < unlimited - 0.5
    assert limited < math.log(3.0)


def test_cost_counts_less_towards_the_end_and_not_where_trials_run_out_first() -> None:
    def power(ended: float, **budget: Any) -> float:
        return cost_power(Budget(**budget), timed(ended))

    assert power(100.0, time=1000.0) == 0.9
    assert power(900.0, time=1000.0) < 0.2
    assert power(100.0, time=1000.0, trials=20) == 0.0
    assert bayes(trials=20).suggest(timed(100.0), []) == bayes().suggest(timed(100.0), [])


MIXED = Space(Float("x", 0.0, 1.0), Float("y", 0.0, 1.0), Choice("c", ["a", "b"]))


def mixed(count: int) -> list[Trial]:
    found = []
    for i, p in enumerate(MIXED.sample(np.random.default_rng(0), count)):
        loss = (p["x"] - 0.3) ** 2 + (p["c"] == "a")  # type: ignore[operator]
        found.append(Trial(i, p, TrialState.COMPLETED, {"loss": loss, "size": 1 - p["x"]}))  # type: ignore[operator]
    return found


def test_the_expected_hypervolume_improvement_is_that_of_samples() -> None:
    goals, history = [Goal("loss"), Goal("size")], mixed(14)
    posterior = Surrogates(MIXED, goals, (), 0).fit(TrialReader(MIXED, goals, [])(history))
    acquisition = Acquisition(posterior)
    unit = MIXED.encode(MIXED.sample(np.random.default_rng(1), 6))
    lower, upper = acquisition._cells
    draws = []
    for goal in posterior.goals:
        mean, variance = goal.moments(goal.encode(unit))
        noise = torch.randn((20_000, *mean.shape), dtype=torch.float64)
        draws.append((mean + variance.sqrt() * noise).transpose(1, 2).flatten(2))
    expected = torch.zeros(6, dtype=torch.float64)
    for low, high in zip(lower, upper, strict=True):
        sides = [(d.minimum(high[g]) - low[g]).clamp(min=0.0).mean(-1) for g, d in enumerate(draws)]
        expected += (sides[0] * sides[1]).mean(0)
    found = acquisition(unit).exp()
    torch.testing.assert_close(found, expected, rtol=0.1, atol=0.01)


def fitted(X: torch.Tensor, Y: torch.Tensor) -> SingleTaskGP:
    model = SingleTaskGP(X, Y)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


@pytest.mark.parametrize(
    ("goals", "options"),
    [
        (1, {"acquisition": lambda model, X, Y: qLogNoisyExpectedImprovement(model, X)}),
        (1, {"model": fitted}),
        (
            1,
            {
                "model": SingleTaskGP,
                "acquisition": lambda model, X, Y: LogExpectedImprovement(model, Y.max()),
            },
        ),
        (
            2,
            {
                "acquisition": lambda model, X, Y: qLogNoisyExpectedHypervolumeImprovement(
                    model,
                    Y.min(0).values - 0.1,
                    X,
                    get_sampler(model.posterior(X), torch.Size([4])),
                )
            },
        ),
    ],
)
def test_models_and_acquisitions_of_botorch_are_taken(goals: int, options: dict[str, Any]) -> None:
    names = [Goal("loss"), Goal("size")][:goals]
    suggester = BayesSuggester(MIXED, names, seed=0, **options)
    history = mixed(14 if goals == 1 else 6)  # the front's acquisition is slow
    waiting = Trial(14, {"x": 0.3, "y": 0.5, "c": "b"}, TrialState.RUNNING)
    for found in suggester.suggest(history, [waiting], 3 - goals):
        assert MIXED.legal(found)
        assert found["c"] == "b" or goals == 2
    assert suggester.encode([history[0].params]).shape == (1, 4)
