"""The configurations that `curve` proposes lie within limits and follow the user's prior."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from automl.core.goals import parse_goals
from automl.core.trial import ReportPoint, Trial, TrialState
from automl.stopping.curve.stopper import CurveStopper
from automl.suggesters.base import SearchContext
from automl.suggesters.domain import Domain, Limit
from search_spaces import Choice, Float, Space

SPACE = Space(Float("x", 0.0, 1.0), Float("y", 0.0, 1.0), Choice("kind", ["a", "b", "c"]))
LIMITS = {"x": Limit(low=0.8, high=0.9), "kind": Limit(choices=("a", "b"))}


def curve(number: int, params: dict[str, Any]) -> Trial:
    final = (params["x"] - 0.2) ** 2 + params["y"]
    reports = tuple(
        ReportPoint(step, {"loss": final + 1.0 / step}, float(step)) for step in (1, 2, 4, 8)
    )
    metrics = dict(reports[-1].metrics)
    return Trial(number, params, TrialState.COMPLETED, metrics, reports=reports, seconds=8.0)


def proposals(stopper: CurveStopper) -> list[dict[str, Any]]:
    trials = [curve(i, p) for i, p in enumerate(SPACE.sample(np.random.default_rng(0), 24))]
    for trial in trials:
        stopper.observe(trial)
    stopper.spent = 0.5
    found = []
    for _ in range(12):
        stopper.resume(trials)
        if (params := stopper.propose(trials)) is not None:
            found.append(dict(params))
    return found


def stopper_of(context: SearchContext | None) -> CurveStopper:
    return CurveStopper(parse_goals("minimize loss"), seed=0, space=SPACE, context=context)


@pytest.mark.parametrize("late", [False, True])
def test_new_configurations_lie_within_limits(late: bool) -> None:
    domain = Domain(SPACE, LIMITS)
    stopper = stopper_of(SearchContext(Domain(SPACE) if late else domain))
    stopper.restrict(domain)
    found = proposals(stopper)
    assert len(found) > 3
    assert all(domain.legal(params) for params in found)


def test_the_users_prior_decides_between_equal_options() -> None:
    def share(option: str) -> float:
        context = SearchContext(Domain(SPACE), {"kind": option})
        found = proposals(stopper_of(context))
        return float(np.mean([params["kind"] == option for params in found]))

    assert [share(option) > 0.8 for option in ("a", "b", "c")] == [True, True, True]


def test_another_suggester_leaves_nothing_to_propose() -> None:
    assert proposals(stopper_of(None)) == []
