"""The metric that the model expects over two parameters together."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from automl.core import text
from automl.report.axis_range import AxisRange
from automl.report.effects import Insight, configurations, grid_of, moved
from automl.report.metric_models import MetricModel
from automl.report.plotting import (
    INK,
    SCALE,
    Figure,
    Panel,
    axis,
    escape,
    figure,
    place,
    position,
    rounded,
    spread,
)
from automl.report.record import Record
from search_spaces import Choice

TITLE: Final = "Two parameters together"
FINE: Final = 15  # values of each parameter
NUM_AVERAGED: Final = 16  # tried configurations
MANY: Final = 800


def panel(record: Record, insights: Sequence[Insight]) -> Panel:
    """The contours of each believable metric over its two most important parameters."""
    shown = [one for one in insights if len(one.effects) > 1]
    if not shown:
        return Panel("contours", TITLE, "No believable model depends on two parameters.")
    caption = (
        "The metric that the model expects for each pair of values, averaged over the tried "
        "values of all other parameters. A stronger colour is better; dots are trials."
    )
    figures = tuple(
        contours(record, one.model, one.effects[0].name, one.effects[1].name) for one in shown
    )
    return Panel("contours", TITLE, caption, figures)


def contours(record: Record, model: MetricModel, one: str, other: str) -> Figure:
    """The mean of the model over two parameters, and its trials.

    Args:
        one, other: names of different parameters of the space.
    """
    parameters = [record.space.parameters[name] for name in (one, other)]
    grids = [grid_of(parameter, FINE) for parameter in parameters]
    base = configurations(record)[:NUM_AVERAGED]
    rows = [
        moved(record.space, moved(record.space, params, one, first), other, second)
        for second, first, params in product(grids[1], grids[0], base)
    ]
    z = _means(record, model, rows).reshape(len(grids[1]), len(grids[0]), len(base)).mean(2)
    limits = AxisRange.of(z.reshape(-1).tolist(), log=False)
    colours = [colour for _, colour in SCALE][:: 1 if model.sign < 0 else -1]
    lines = not any(isinstance(parameter, Choice) for parameter in parameters)
    surface = {
        "type": "contour" if lines else "heatmap",
        "x": rounded([position(parameters[0], value) for value in grids[0]]),
        "y": rounded([position(parameters[1], value) for value in grids[1]]),
        "z": [rounded(row) for row in z.tolist()],
        "zmin": limits.low,
        "zmax": limits.high,
        "colorscale": [[i / 2, colour] for i, colour in enumerate(colours)],
        "colorbar": {"title": {"text": escape(model.metric)}},
        "meta": {"colors": [f"var(--h{i})" for i in ((0, 1, 2) if model.sign < 0 else (2, 1, 0))]},
        "hovertemplate": "%{z:.4g}<extra></extra>",
    }
    return figure(
        [surface, _trials(record, model, one, other)],
        400,
        title=model.title,
        margin={"l": 70, "r": 20, "t": 40, "b": 50},
        xaxis=axis(parameters[0]),
        yaxis=axis(parameters[1]),
    )


def _means(
    record: Record, model: MetricModel, rows: Sequence[Mapping[str, Any]]
) -> NDArray[np.float64]:
    """The median of the metric for each configuration, over the members of the ensemble."""
    from automl.suggesters.bayes.suggester import one_thread

    with one_thread():
        mean = model.ensemble.moments(model.encoder(record.space.encode(rows)))[0]
    return np.asarray(np.median(model.values(mean.numpy()), axis=0), dtype=np.float64)


def _trials(record: Record, model: MetricModel, one: str, other: str) -> dict[str, Any]:
    parameters = [record.space.parameters[name] for name in (one, other)]
    known = [
        (
            trial,
            float(value),
            [place(p, trial.params[p.name], trial.number) for p in parameters],
        )
        for trial, value in zip(model.trials, model.observed, strict=True)
        if all(parameter.name in trial.params for parameter in parameters)
    ]
    if len(known) > MANY:  # overlapping ones are drawn once
        known = [known[row] for row in spread([(at[0], at[1]) for _, _, at in known], 120, 60)]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": rounded([at[0] for _, _, at in known]),
        "y": rounded([at[1] for _, _, at in known]),
        "marker": {"color": INK, "size": 5},
        "customdata": [trial.number for trial, _, _ in known],
        "text": [
            f"trial {trial.number}: {escape(model.metric)} {text.number(value)}"
            for trial, value, _ in known
        ],
        "hoverinfo": "text",
        "showlegend": False,
    }
