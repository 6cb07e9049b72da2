"""Cross-validation of the surrogates: can what they say be believed?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from automl.report.draw import Figure, Panel, escape, figure, metric_axis, rounded
from automl.report.effects import Insight
from automl.report.learned import Learned
from automl.report.record import Record

from .importance import COLOURS

TITLE = "Can the surrogates be believed?"
DRAWS = 40


def panel(record: Record, insights: Sequence[Insight]) -> Panel:
    """Each trial's value against what the surrogate predicts from all the others."""
    if not insights:
        return Panel("calibration", TITLE, "Too few trials have succeeded to fit a surrogate.")
    from automl.suggesters.bayes.model.calibration import calibrate

    learned = [insight.learned for insight in insights]
    verdicts = [str(calibrate(one.metric, one.model)) for one in learned]
    caption = (
        "Each point is a trial: what it reached, against what the surrogate predicts for it from all other "
        "trials, with 90% of what it thinks possible (its hyperparameters are those of all trials). Points on the "
        "diagonal are predicted well. " + "".join(f"\n{verdict}." for verdict in verdicts)
    )
    return Panel("calibration", TITLE, caption, tuple(_draw(one) for one in learned))


def _draw(learned: Learned) -> Figure:
    mean, variance = (part.numpy() for part in learned.model.leave_one_out())
    noise = np.random.default_rng(0).standard_normal((DRAWS, *mean.shape))
    draws = (mean + np.sqrt(variance) * noise).reshape(-1, mean.shape[1])
    low, middle, high = np.quantile(learned.values(draws), [0.05, 0.5, 0.95], axis=0)
    observed = learned.values(learned.model.y.numpy().reshape(-1))
    ends = [float(observed.min()), float(observed.max())]
    room = 0.25 * (ends[1] - ends[0]) or 1.0
    span = [ends[0] - room, ends[1] + room]
    if learned.log:
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
        "marker": {"color": COLOURS[learned.aspect], "size": 7},
        "text": [f"trial {trial.number}" for trial in learned.trials],
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
    axis = metric_axis(learned.metric, observed.tolist(), log=learned.log)
    name = escape(learned.metric)
    axes = {
        "xaxis": {**axis, "title": {"text": f"{name} reached"}},
        "yaxis": {**axis, "title": {"text": f"{name} predicted"}, "range": span},
    }
    return figure([points, diagonal], 360, showlegend=False, **axes)
