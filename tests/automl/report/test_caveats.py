"""The caveats of the summary and the report."""

from __future__ import annotations

from dataclasses import replace

from automl.core.goals import Goal
from automl.core.snapshot import Snapshot
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


def test_skipped_updates_are_counted() -> None:
    skipped = {"skipped_updates": 3.0, "updates": 200.0}
    assert list(caveats(sweep({}, {"skipped_updates": 0.0}), SPACE)) == []
    assert list(caveats(sweep({}, skipped), SPACE)) == [
        "1 trial skipped updates because gradients were not finite; trial 1 skipped most: 3 of 200"
    ]
    both = list(caveats(sweep({"skipped_updates": 1.0}, skipped), SPACE))
    assert both[0].startswith("2 trials skipped updates")


def test_a_goal_against_the_declared_direction_is_reported() -> None:
    goal = Goal("loss", declared=Metric("loss", "maximize"))
    assert list(caveats(replace(sweep({}), goals=(goal,)), SPACE)) == [
        "the goal is 'minimize loss', but loss is declared: higher is better"
    ]
    agreed = Goal("loss", declared=Metric("loss", "minimize"))
    assert list(caveats(replace(sweep({}), goals=(agreed,)), SPACE)) == []
