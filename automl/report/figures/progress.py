"""The best value so far over the time of the sweep."""

from typing import Any

from automl.core import Trial, text
from automl.core.curve import improvements
from automl.core.standings import Standings
from automl.report.axis_range import AxisRange
from automl.report.plotting import (
    BLUE,
    GREY,
    STATE_COLOURS,
    Figure,
    Panel,
    figure,
    hover,
    limited_axis,
    rounded,
    spread,
)
from automl.report.record import Record

MANY = 1500
TITLE = "Progress"


def panel(record: Record) -> Panel:
    """The best so far over time, every trial as a point, failures at the bottom."""
    goal = record.goal
    scored = [
        (trial, value) for trial in record.ended if (value := record.value(trial)) is not None
    ]
    if not scored:
        return Panel("progress", TITLE, f"No trial has a value of {goal.metric} yet.")
    caption = "Each point is a trial at the time when it ended; crosses are failed or infeasible."
    limits = AxisRange.of(value for _, value in scored)
    return Panel("progress", TITLE, caption, (_draw(record, scored, limits),))


def _draw(record: Record, scored: list[tuple[Trial, float]], limits: AxisRange) -> Figure:
    goal = record.goal
    steps = list(improvements(goal, ((trial.ended or 0.0, value) for trial, value in scored)))
    end = max(record.snapshot.seconds, steps[-1][0])
    points = _points(record, scored, {value for _, value in steps})
    line = {
        "type": "scatter",
        "mode": "lines",
        "name": "best so far",
        "x": rounded([*(at for at, _ in steps), end]),
        "y": rounded([*(value for _, value in steps), steps[-1][1]]),
        "line": {"color": BLUE, "width": 3, "shape": "hv"},
        "hoverinfo": "skip",
    }
    data = [points, line]
    outcomes = Standings.of(record.snapshot).outcomes
    for outcome in ("infeasible", "failed"):
        if found := [trial for trial in record.ended if outcomes[trial.number] == outcome]:
            data.append(_crosses(found, outcome))
    layout: dict[str, Any] = {
        "xaxis": {"title": {"text": "sweep time (seconds)"}, "rangemode": "tozero"},
        "yaxis": limited_axis(goal.metric, limits),
    }
    return figure(data, **layout, yaxis2={"overlaying": "y", "visible": False, "range": [0, 1]})


def _points(record: Record, scored: list[tuple[Trial, float]], best: set[float]) -> dict[str, Any]:
    many, name = len(scored) > MANY, record.goal.metric
    if many:  # overlapping ones are drawn once, but every new best is drawn
        rows = set(spread([(trial.ended or 0.0, value) for trial, value in scored], 200, 60))
        scored = [item for i, item in enumerate(scored) if i in rows or item[1] in best]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "trials",
        "x": rounded([trial.ended for trial, _ in scored]),
        "y": rounded([value for _, value in scored]),
        "marker": {
            "color": GREY,
            "size": 4 if many else 7,
            "opacity": 0.45 if many else 0.7,
        },
        "cliponaxis": False,
        "customdata": [trial.number for trial, _ in scored],
        "text": [
            f"trial {t.number}" if many else hover(t, f"{name} {text.number(v)}") for t, v in scored
        ],
        "hoverinfo": "text",
    }


def _crosses(trials: list[Trial], outcome: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": outcome,
        "yaxis": "y2",
        "x": rounded([trial.ended for trial in trials]),
        "y": [0.02] * len(trials),
        "marker": {"color": STATE_COLOURS[outcome], "symbol": "x", "size": 7},
        "customdata": [trial.number for trial in trials],
        "text": [f"trial {t.number}: {(t.failure or outcome).replace('_', ' ')}" for t in trials],
        "hoverinfo": "text",
    }
