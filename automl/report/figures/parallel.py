"""Parallel coordinates of the configurations."""

import math
from html import unescape
from typing import Any

import numpy as np

from automl.core import Trial, text
from automl.report.axis_range import AxisRange
from automl.report.plotting import (
    SCALE,
    Panel,
    axis,
    escape,
    figure,
    linear_ticks,
    log_ticks,
    position,
    rounded,
)
from automl.report.record import Record
from search_spaces import Parameter

MAX_LINES = 1000
TITLE = "Configurations (parallel coordinates)"


def panel(record: Record) -> Panel:
    """A line for each trial through the values of its parameters, coloured by the goal."""
    scored = record.scored()
    if len(scored) < 2:
        return Panel(
            "parallel",
            TITLE,
            "Fewer than two trials have a value of the goal.",
        )
    left_out = len(record.trials) - len(scored)
    caption = (
        f"Each line is a trial; a darker line has a better {record.goal.metric}. Drag along an "
        "axis to select lines."
    )
    if left_out:
        caption += (
            f" {left_out} trials without a value (failed, infeasible or unfinished) are not shown."
        )
    if len(scored) > MAX_LINES:
        half = MAX_LINES // 2
        rest = np.random.default_rng(0).permutation(len(scored) - half)[:half] + half
        scored = [*scored[:half], *(scored[row] for row in sorted(rest))]
        caption += f" The best {half} and as many others are shown."
    drawn = scored[::-1]  # the best on top
    dimensions = [
        _dimension(parameter, drawn)
        for name, parameter in record.space.parameters.items()
        if parameter.size != 1
    ]
    dimensions += [_metric(record, drawn, index) for index in range(len(record.snapshot.goals))]
    trace = {
        "type": "parcoords",
        "line": {"color": list(range(len(drawn))), "colorscale": SCALE},
        "dimensions": dimensions,
        "customdata": [trial.number for trial, _ in drawn],
        "labelfont": {"size": 12},
        "tickfont": {"size": 10},
        "labelangle": -25,
    }
    size = {"width": 78 * len(dimensions)} if len(dimensions) > 13 else {}
    longest = max(len(dimension["label"]) for dimension in dimensions)
    margin = {"l": 90, "r": 70, "t": 50 + 2 * longest, "b": 30}
    return Panel("parallel", TITLE, caption, (figure([trace], 460, margin=margin, **size),))


def _dimension(parameter: Parameter, scored: list[tuple[Trial, float]]) -> dict[str, Any]:
    """The axis of a parameter; trials without it pass below its range, at "inactive"."""
    found = axis(parameter)
    low, high = found["range"]
    values = [
        position(parameter, trial.params[parameter.name])
        if parameter.name in trial.params
        else None
        for trial, _ in scored
    ]
    found["ticktext"] = [unescape(tick) for tick in found["ticktext"]]  # shown without markup
    ticks: dict[str, Any] = {
        key: list(found[key]) for key in ("tickvals", "ticktext") if key in found
    }
    if None in values:
        absent = low - 0.12 * (high - low)
        values = [absent if value is None else value for value in values]
        ticks = {
            "tickvals": [absent, *ticks["tickvals"]],
            "ticktext": ["inactive", *ticks["ticktext"]],
        }
        low = absent
    return {
        "label": escape(parameter.name),
        "values": rounded(values),
        "range": [low, high],
        **ticks,
    }


def _metric(record: Record, scored: list[tuple[Trial, float]], index: int) -> dict[str, Any]:
    name = record.snapshot.goals[index].metric
    values = [record.value(trial, index) for trial, _ in scored]
    known = [value for value in values if value is not None]
    limits = AxisRange.of(known)
    inside = limits.inside(limits.low if value is None else value for value in values)
    ticks = (log_ticks if limits.log else linear_ticks)(limits.low, limits.high)
    place = math.log10 if limits.log else float
    return {
        "label": escape(name),
        "values": rounded(map(place, inside)),
        "range": limits.range,
        "tickvals": rounded(map(place, ticks)),
        "ticktext": [text.metric(name, tick) for tick in ticks],
    }
