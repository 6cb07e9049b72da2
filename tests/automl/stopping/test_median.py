"""The median rule: the losses that it keeps of each trial."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from automl.core import ReportPoint, parse_constraints, parse_goals
from automl.stopping._ranking import best_losses
from automl.stopping.median import BestCurve

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
def test_a_curve_has_the_loss_vector_of_each_report(
    goals: Any, reported: list[dict[str, float]]
) -> None:
    parsed, constraints = parse_goals(goals), parse_constraints("size <= 0")
    points = [ReportPoint(step, metrics, float(step)) for step, metrics in enumerate(reported)]
    curve = BestCurve(parsed, constraints)
    for point in points:
        curve.add(point)
    expected = [
        best_losses(reported[:count], parsed, constraints) for count in range(1, len(points) + 1)
    ]
    assert repr(curve.losses) == repr(expected)
