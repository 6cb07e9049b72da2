"""The loss vectors by which trials are compared."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from automl.core import ReportPoint, Trial, parse_constraints, parse_goals
from automl.core.trial import violation
from automl.stopping._ranking import TrialCurves

VALUES = st.sampled_from([-2.0, -1.0, 0.0, 1.0, 2.0, math.nan, math.inf])
METRICS = st.dictionaries(st.sampled_from(["loss", "bleu", "size"]), VALUES)
OVERFITTED = [{"loss": loss, "bleu": -loss, "size": loss} for loss in (2.0, 1.0, 3.0, math.nan)]


@pytest.mark.parametrize(
    "goals",
    [
        "minimize loss",
        "minimize loss at the end",
        "maximize bleu at the end",
        ["minimize loss at the end", "maximize bleu"],
    ],
    ids=str,
)
@given(st.lists(METRICS, max_size=6))
@example(OVERFITTED)
def test_a_trial_has_the_loss_vector_of_each_report(
    goals: Any, reported: list[dict[str, float]]
) -> None:
    parsed, constraints = parse_goals(goals), parse_constraints("size <= 0")
    points = [ReportPoint(step, metrics, float(step)) for step, metrics in enumerate(reported)]
    curves = TrialCurves(Trial(0, {}, reports=points), parsed, constraints)  # type: ignore[arg-type]
    begin = len(points)
    for place in reversed(range(len(points))):
        until = reported[: place + 1]
        best = [
            known[-1] if goal.at_end else min(known)
            for goal in parsed
            if (
                known := [
                    x for m in until if math.isfinite(x := goal.loss(m.get(goal.metric, math.nan)))
                ]
            )
        ]
        latest = {name: value for item in until for name, value in item.items()}
        whole = len(best) == len(parsed)
        expected = (violation(latest, constraints), *best) if whole else None
        assert repr(curves.losses(place)) == repr(expected)
        assert repr(curves.losses_at(place - 0.5)) == repr(expected)
        begin = place if whole and place > 0 else begin
    assert curves.losses_at(len(points)) is None
    assert curves.begin == begin
