"""The importance of each parameter, for quality, speed and memory."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from automl.report.effects import Effect, Insight
from automl.report.metric_models import MetricModel
from automl.report.plotting import BLUE, ORANGE, PURPLE, Figure, Panel, escape, figure, rounded
from automl.report.record import Record

COLOURS = {"quality": BLUE, "speed": ORANGE, "memory": PURPLE}
MAX_PARAMETERS = 15


def panel(record: Record, insights: Sequence[Insight]) -> Panel:
    """Bars of the importances of each metric, with intervals."""
    title = "Parameter importance"
    if not insights:
        return Panel("importance", title, "Too few trials have succeeded to fit a model.")
    if all(one.doubt for one in insights):
        return Panel("importance", title, doubts(insights).strip())
    caption = (
        "How much the metric changes with one parameter alone, averaged over the tried values of "
        "the others; 1 is the standard deviation of all trials. Lines are 90% intervals. "
        + "".join(_unaffected(record, one.model) for one in insights if not one.doubt)
        + doubts(insights)
    )
    return Panel(
        "importance",
        title,
        caption.strip(),
        tuple(_bars(one.model, one.effects) for one in insights if one.effects),
    )


def doubts(insights: Sequence[Insight]) -> str:
    """A line for each model that is not believable, whose figures are not drawn."""
    return "".join(f"\nNot drawn: {one.doubt}." for one in insights if one.doubt)


def _unaffected(record: Record, model: MetricModel) -> str:
    missing = [
        n for n, p in record.space.parameters.items() if n not in model.names and p.size != 1
    ]
    if not missing:
        return ""
    return f"\nBy their `affects`, {', '.join(missing)} cannot change {model.metric}."


def _bars(model: MetricModel, found: Sequence[Effect]) -> Figure:
    shown = list(found[:MAX_PARAMETERS])[::-1]
    low, high = (np.array([np.quantile(e.importance, q) for e in shown]) for q in (0.05, 0.95))
    weight = np.array([effect.weight for effect in shown])
    bar: dict[str, Any] = {
        "type": "bar",
        "orientation": "h",
        "y": [escape(effect.name) for effect in shown],
        "x": rounded(weight, 3),
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": rounded(high - weight, 3),
            "arrayminus": rounded(weight - low, 3),
            "color": "#57606a",
            "thickness": 1.2,
        },
        "marker": {"color": COLOURS[model.aspect], "opacity": 0.85},
        "hovertemplate": "%{y}: %{x}<extra></extra>",
    }
    return figure(
        [bar],
        110 + 24 * len(shown),
        title=model.title,
        margin={"l": 140, "r": 20, "t": 40, "b": 40},
        xaxis={"title": {"text": "importance"}, "rangemode": "tozero"},
        yaxis={"showgrid": False},
    )
