"""The caveats of the summary and the report."""

from __future__ import annotations

from dataclasses import replace

from automl.core.goals import Goal
from automl.core.state import Snapshot
from automl.core.trial import Trial, TrialState
from automl.report.caveats import caveats
from search_spaces import Float, Space
from workers.protocol import Metric

SPACE = Space(Float("x", 0.0, 1.0))


def sweep(*metrics: dict[str, float]) -> Snapshot:
    trials = [
        Trial(number, {"x": 0.5}, TrialState.COMPLETED, {"loss": 1.0, **m})
        for number, m in enumerate(metrics)
    ]
    return Snapshot("s", "running", trials, (Goal("loss"),))


def test_a_goal_against_the_declared_direction_is_reported() -> None:
    goal = Goal("loss", declared=Metric("loss", "maximize"))
    assert list(caveats(replace(sweep({}), goals=(goal,)), SPACE)) == [
        "the goal is 'minimize loss', but loss is declared: higher is better"
    ]
    agreed = Goal("loss", declared=Metric("loss", "minimize"))
    assert list(caveats(replace(sweep({}), goals=(agreed,)), SPACE)) == []
