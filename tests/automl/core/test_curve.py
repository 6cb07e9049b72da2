"""The learning curve of a trial, against the plain definition of each of its numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from automl.core import (
    Goal,
    ReportLog,
    ReportPoint,
    Trial,
    TrialState,
    parse_constraints,
    parse_goals,
    ranking,
)
from automl.core.trial import LearningCurve, violation

VALUES = st.sampled_from([-2.0, -1.0, -0.0, 0.0, 1.0, 2.0, math.nan, math.inf])
METRICS = st.dictionaries(st.sampled_from(["loss", "size", "speed"]), VALUES)
CONSTRAINTS: Any = parse_constraints(["size <= 0", "speed >= 0"])
OVERFITTED = [{"loss": loss, "size": loss} for loss in (2.0, 1.0, 3.0, math.nan)]


def points_of(reported: list[dict[str, float]]) -> list[ReportPoint]:
    return [ReportPoint(step, metrics, step / 2, 1, step) for step, metrics in enumerate(reported)]


def value_by_definition(trial: Trial, goal: Goal, constraints: Any) -> float | None:
    """The best of the final metrics and the reports; a report may lack a constraint's metric."""
    needed = {c.metric: trial.metrics[c.metric] for c in constraints if c.metric in trial.metrics}
    reported = [{**needed, **p.metrics} for p in trial.reports if goal.metric in p.metrics]
    found = [
        point[goal.metric]
        for point in [trial.metrics, *reported]
        if math.isfinite(point.get(goal.metric, math.nan))
        and all(c.holds(point) for c in constraints)
    ]
    return (max if goal.maximize else min)(found, default=None)


@pytest.mark.parametrize(
    "text",
    ["minimize loss", "maximize loss", "minimize loss at the end", "maximize loss at the end"],
)
@given(st.lists(METRICS, max_size=7))
@example(OVERFITTED)
def test_each_entry_follows_from_the_reports_until_then(
    text: str, reported: list[dict[str, float]]
) -> None:
    (goal,) = parse_goals(text)
    points = points_of(reported)
    curve = ReportLog(points).curve(goal, CONSTRAINTS)
    for place in range(len(points)):
        metrics = [point.metrics for point in points[: place + 1]]
        known = [goal.loss(m["loss"]) for m in metrics if math.isfinite(m.get("loss", math.nan))]
        latest = {name: value for item in metrics for name, value in item.items()}
        best = known[-1:] if goal.at_end else known
        assert curve[place].newest == (known[-1] if known else math.inf)
        assert curve[place].best == min(best, default=math.inf)
        assert curve[place].lowest == min(known, default=math.inf)
        assert repr(curve[place].excess) == repr(violation(latest, CONSTRAINTS))
    assert [point.step for point in curve] == [point.step for point in points]
    assert [point.seconds for point in curve] == [point.seconds for point in points]
    assert len(curve) == len(points)


@pytest.mark.parametrize("text", ["minimize loss", "maximize loss"])
@pytest.mark.parametrize("constraints", [(), CONSTRAINTS[:1], CONSTRAINTS], ids=len)
@given(st.lists(METRICS, max_size=7), METRICS)
def test_the_value_of_each_version_of_a_trial_is_its_definition(
    constraints: Any, text: str, reported: list[dict[str, float]], returned: dict[str, float]
) -> None:
    """In any order: a later version of a trial has extended the curve that they share."""
    (goal,) = parse_goals(text)
    log, versions = ReportLog(), []
    metrics: dict[str, float] = {}
    for point in points_of(reported):
        log, metrics = log.with_added(point), {**metrics, **point.metrics}
        versions.append(Trial(0, {}, TrialState.RUNNING, metrics, reports=log))
    ended = Trial(0, {}, TrialState.COMPLETED, {**metrics, **returned}, reports=log)
    for trial in [*versions, ended, *reversed(versions)]:
        expected = value_by_definition(trial, goal, constraints)
        assert repr(ranking.value(trial, goal, constraints)) == repr(expected)


def test_each_report_is_read_once() -> None:
    (goal,) = parse_goals("minimize loss")
    log, curves = ReportLog(), set()
    for point in points_of([{"loss": float(-number)} for number in range(50)]):
        log = log.with_added(point)
        curves.add(id(log.curve(goal)))
    assert len(curves) == 1
    assert len(log.curve(goal)) == 50
    assert log.curve(goal, CONSTRAINTS) is not log.curve(goal)


def test_a_trial_that_counts_back_makes_no_backward_progress() -> None:
    curve = LearningCurve(parse_goals("minimize loss")[0])
    for step, seconds in ((2.0, 1.0), (1.0, 3.0), (4.0, 2.0)):
        curve.add({"loss": 1.0}, step, seconds)
    assert ([point.step for point in curve], [point.seconds for point in curve]) == (
        [2.0, 2.0, 4.0],
        [1.0, 3.0, 3.0],
    )
