"""Partial dependence of each metric on each parameter, with its uncertainty."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from automl.core import text
from automl.report.axis_range import AxisRange
from automl.report.effects import Effect, Insight
from automl.report.metric_models import MetricModel
from automl.report.plotting import (
    GREY,
    Figure,
    Panel,
    axis,
    figure,
    metric_axis,
    position,
    rounded,
)
from automl.report.record import Record

from .importance import COLOURS, doubts

MAX_PARAMETERS = 6
ACROSS = 3
BEYOND = 0.3  # of the observed range; bands are drawn this far beyond it


def panel(record: Record, insights: Sequence[Insight]) -> Panel:
    """A grid of curves for each metric, the most important parameters first."""
    title = "Effect of each parameter (partial dependence)"
    if not insights:
        return Panel(
            "dependence",
            title,
            "Too few trials have succeeded to fit a model.",
        )
    if all(one.doubt for one in insights):
        return Panel("dependence", title, doubts(insights).strip())
    caption = (
        "The metric that the model expects if one parameter changes, averaged over the tried "
        "values of the others, with its 90% band. If the band is as wide as the curve is high, "
        "the effect is not known yet. Dots are trials, which differ in other parameters too. "
        f"The {MAX_PARAMETERS} most important parameters of each metric are shown."
        + doubts(insights)
    )
    figures = tuple(_grid(record, one) for one in insights if one.effects)
    return Panel("dependence", title, caption, figures)


def _grid(record: Record, insight: Insight) -> Figure:
    model, found = insight.model, insight.effects[:MAX_PARAMETERS]
    rows = max((len(found) + ACROSS - 1) // ACROSS, 1)
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {}
    span, values = _span(model, found), metric_axis(model.metric, log=model.log)
    for i, effect in enumerate(found):
        key = "" if i == 0 else str(i + 1)
        parameter = record.space.parameters[effect.name]
        column, row = i % ACROSS, i // ACROSS
        left, bottom = column / ACROSS, 1 - (row + 1) / rows
        layout[f"xaxis{key}"] = {
            **axis(parameter),
            "domain": [left + 0.025, left + 1 / ACROSS - 0.03],
            "anchor": f"y{key}",
            "automargin": False,
        }
        layout[f"yaxis{key}"] = {
            **values,
            "domain": [bottom + 0.25 / rows, bottom + 0.97 / rows],
            "anchor": f"x{key}",
            "range": span,
            "automargin": column == 0,
        }
        data += _curve(record, model, effect, key)
    return figure(
        data,
        40 + 270 * rows,
        title=model.title,
        margin={"l": 80, "r": 10, "t": 36, "b": 10},
        showlegend=False,
        **layout,
    )


def _span(model: MetricModel, found: Sequence[Effect]) -> list[float]:
    """One axis range for all curves of a metric: the observed one, and a part of the bands."""
    observed = model.observed
    usual = np.quantile(observed, [0.0, 0.8] if model.sign > 0 else [0.2, 1.0])
    bands = [np.concatenate([effect.low, effect.high]) for effect in found]
    ends = np.array([min(usual[0], *map(np.min, bands)), max(usual[1], *map(np.max, bands))])
    limits = AxisRange.of(observed, log=False)
    seen = np.array([observed.min(), observed.max()] if model.log else [limits.low, limits.high])
    if model.log:
        ends, seen = np.log10(ends), np.log10(seen)
    beyond = BEYOND * (seen[1] - seen[0])
    low, high = max(ends[0], seen[0] - beyond), min(ends[1], seen[1] + beyond)
    room = 0.06 * (high - low) or 1.0
    return [float(low - room), float(high + room)]


def _curve(record: Record, model: MetricModel, effect: Effect, key: str) -> list[dict[str, Any]]:
    parameter = record.space.parameters[effect.name]
    x = rounded([position(parameter, value) for value in effect.grid])
    colour, axes = COLOURS[model.aspect], {"xaxis": f"x{key}", "yaxis": f"y{key}"}
    trials = [t for t in model.trials if effect.name in t.params]
    values = {t.number: float(v) for t, v in zip(model.trials, model.observed, strict=True)}
    dots = {
        "type": "scatter",
        "mode": "markers",
        "x": rounded([position(parameter, t.params[effect.name]) for t in trials]),
        "y": rounded([values[t.number] for t in trials]),
        "marker": {"color": GREY, "size": 4, "opacity": 0.4},
        "customdata": [t.number for t in trials],
        "text": [f"trial {t.number}: {text.number(values[t.number])}" for t in trials],
        "hoverinfo": "text",
        **axes,
    }
    if effect.grid and not hasattr(parameter, "low"):
        return [dots, _bars(effect, x, colour, axes)]
    band = {
        "type": "scatter",
        "mode": "lines",
        "x": [*x, *x[::-1]],
        "y": rounded([*effect.high, *effect.low[::-1]]),
        "fill": "toself",
        "fillcolor": colour,
        "opacity": 0.18,
        "line": {"width": 0},
        "hoverinfo": "skip",
        **axes,
    }
    line = {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "y": rounded(effect.middle),
        "hoverinfo": "y",
        **axes,
    }
    return [dots, band, line | {"line": {"color": colour, "width": 2.5}}]


def _bars(
    effect: Effect, x: list[float | None], colour: str, axes: dict[str, str]
) -> dict[str, Any]:
    """Points with intervals, for a choice."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": x,
        "y": rounded(effect.middle),
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": rounded(effect.high - effect.middle),
            "arrayminus": rounded(effect.middle - effect.low),
            "color": colour,
            "thickness": 1.5,
        },
        "marker": {"color": colour, "size": 10},
        "hoverinfo": "y",
        **axes,
    }
