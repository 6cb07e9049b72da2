"""Which parameters matter, for quality, speed and memory apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from automl.report.draw import BLUE, ORANGE, PURPLE, Figure, Panel, escape, figure, rounded
from automl.report.effects import Effect, Insight
from automl.report.learned import Learned
from automl.report.record import Record

COLOURS = {"quality": BLUE, "speed": ORANGE, "memory": PURPLE}
MOST = 15


def panel(record: Record, insights: Sequence[Insight]) -> Panel:
    """Bars of how far each parameter moves a metric, with intervals."""
    title = "Which parameters matter"
    if not insights:
        return Panel(
            "importance", title, "Too few trials have succeeded to say which parameters matter."
        )
    caption = (
        "How far a parameter alone moves the metric, the others staying as they were tried: 1 is as much as the metric "
        "varies over all trials. Lines hold 90% of what is believed. "
    )
    caption += "".join(_unreached(record, one.learned) for one in insights)
    return Panel(
        "importance",
        title,
        caption.strip(),
        tuple(_bars(one.learned, one.effects) for one in insights),
    )


def _unreached(record: Record, learned: Learned) -> str:
    missing = [
        n for n, p in record.space.parameters.items() if n not in learned.names and p.size != 1
    ]
    if not missing:
        return ""
    return (
        f"\nBy what they are said to affect, {', '.join(missing)} cannot change {learned.metric}."
    )


def _bars(learned: Learned, found: Sequence[Effect]) -> Figure:
    shown = list(found[:MOST])[::-1]
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
        "marker": {"color": COLOURS[learned.aspect], "opacity": 0.85},
        "hovertemplate": "%{y}: %{x}<extra></extra>",
    }
    title = {"text": f"{learned.aspect}: {escape(learned.metric)}", "x": 0.01, "font": {"size": 14}}
    margin = {"l": 140, "r": 20, "t": 40, "b": 40}
    xaxis = {"title": {"text": "importance"}, "rangemode": "tozero"}
    return figure(
        [bar],
        110 + 24 * len(shown),
        title=title,
        margin=margin,
        xaxis=xaxis,
        yaxis={"showgrid": False},
    )
