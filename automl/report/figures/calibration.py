"""Cross-validation of the surrogate models."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from automl.report.effects import Insight
from automl.report.metric_models import MetricModel
from automl.report.plotting import Figure, Panel, escape, figure, metric_axis, rounded
from automl.report.record import Record

from .importance import COLOURS

TITLE = "Model fit (cross-validation)"
DRAWS = 40


def panel(record: Record, insights: Sequence[Insight]) -> Panel:
    """The value of each trial against its prediction from all other trials."""
    if not insights:
        return Panel("calibration", TITLE, "Too few trials have succeeded to fit a model.")
    models = [insight.model for insight in insights]
    scores = [str(insight.calibration) for insight in insights]
    caption = (
        "Each point is a trial: the value that it reached, and the model's prediction from all "
        "other trials with its 90% interval. The hyperparameters are fitted to all trials. "
        "Points on the diagonal are predicted well. " + "".join(f"\n{one}." for one in scores)
    )
    return Panel("calibration", TITLE, caption, tuple(_draw(one) for one in models))


def _draw(model: MetricModel) -> Figure:
    mean, variance = (part.numpy() for part in model.ensemble.leave_one_out())
    noise = np.random.default_rng(0).standard_normal((DRAWS, *mean.shape))
    draws = (mean + np.sqrt(variance) * noise).reshape(-1, mean.shape[1])
    low, middle, high = np.quantile(model.values(draws), [0.05, 0.5, 0.95], axis=0)
    observed = model.observed
    ends = [float(observed.min()), float(observed.max())]
    room = 0.25 * (ends[1] - ends[0]) or 1.0
    span = [ends[0] - room, ends[1] + room]
    if model.log:
        span = [float(np.log10(ends[0])) - 0.1, float(np.log10(ends[1])) + 0.1]
    points: dict[str, Any] = {
        "type": "scatter",
        "mode": "markers",
        "x": rounded(observed),
        "y": rounded(middle),
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": rounded(high - middle),
            "arrayminus": rounded(middle - low),
            "color": "#b6bcc4",
            "thickness": 1,
            "width": 0,
        },
        "marker": {"color": COLOURS[model.aspect], "size": 7},
        "customdata": [trial.number for trial in model.trials],
        "text": [f"trial {trial.number}" for trial in model.trials],
        "hovertemplate": "%{text}: reached %{x}, predicted %{y}<extra></extra>",
    }
    diagonal = {
        "type": "scatter",
        "mode": "lines",
        "x": rounded(ends),
        "y": rounded(ends),
        "line": {"color": "#57606a", "dash": "dot"},
        "hoverinfo": "skip",
    }
    axis = metric_axis(model.metric, log=model.log)
    name = escape(model.metric)
    return figure(
        [points, diagonal],
        360,
        showlegend=False,
        xaxis={**axis, "title": {"text": f"reached {name}"}},
        yaxis={**axis, "title": {"text": f"predicted {name}"}, "range": span},
    )
