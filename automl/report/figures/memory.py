"""Estimated and measured peak memory of each trial, and the modules that hold most."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from automl.core import Trial
from automl.core.metrics import ESTIMATED_MEMORY, PEAK_MEMORY
from automl.core.text import memory
from automl.report.plotting import (
    BLUE,
    GREY,
    ORANGE,
    Figure,
    Panel,
    escape,
    figure,
    hover,
    metric_axis,
    rounded,
    spread,
)
from automl.report.record import Record

MANY = 1500
TITLE = "Memory"
MEASURED, ESTIMATED = PEAK_MEMORY.name, ESTIMATED_MEMORY.name


def panel(record: Record) -> Panel:
    """Estimate and measurement of each trial, and the ten largest modules of the best one."""
    trials = [
        trial for trial in record.trials if MEASURED in trial.metrics or ESTIMATED in trial.metrics
    ]
    if not trials:
        return Panel("memory", TITLE, "No trial reported its memory.")
    figures, caption = [_trials(trials)], _caption(trials)
    best = record.snapshot.best
    modules = _modules(best)
    if best is not None and modules:
        caption += f" The bars are the largest modules of trial {best.number}, on one rank."
        figures.append(_bars(modules))
    return Panel("memory", TITLE, caption, tuple(figures))


def _caption(trials: Sequence[Trial]) -> str:
    text = "Peak memory of the rank with the highest peak."
    both = [
        (t.metrics[ESTIMATED], t.metrics[MEASURED])
        for t in trials
        if {ESTIMATED, MEASURED} <= t.metrics.keys()
    ]
    if both:
        near = sum(abs(estimate / peak - 1) <= 0.2 for estimate, peak in both if peak)
        text += f" The estimate was within 20% in {near} of {len(both)} trials."
    refused = sum(
        MEASURED not in trial.metrics and trial.failure == "out_of_memory" for trial in trials
    )
    return text + (
        f" {refused} did not run because their estimate was far too large." if refused else ""
    )


def _modules(trial: Trial | None) -> Mapping[str, float]:
    details = trial.details if trial is not None else {}
    found = (
        details.get("memory_by_module_bytes")
        or details.get("estimated_memory_by_module_bytes")
        or {}
    )
    return dict(list(found.items())[:10])


def _trials(trials: Sequence[Trial]) -> Figure:
    data: list[dict[str, Any]] = []
    for metric, name, colour, symbol in (
        (ESTIMATED, "estimated", ORANGE, "line-ew"),
        (MEASURED, "measured", BLUE, "circle"),
    ):
        known = [trial for trial in trials if metric in trial.metrics]
        if len(known) > MANY:  # overlapping ones are drawn once
            places = [(trial.number, math.log(max(trial.metrics[metric], 1.0))) for trial in known]
            known = [known[row] for row in spread(places, 150, 40)]
        marker = {"color": colour, "size": 8 if symbol == "circle" else 12, "symbol": symbol}
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": [trial.number for trial in known],
                "y": rounded(trial.metrics[metric] for trial in known),
                "marker": {
                    **marker,
                    "line": {"color": colour, "width": 2 if symbol == "line-ew" else 0},
                },
                "customdata": [trial.number for trial in known],
                "text": [
                    hover(trial, f"{name} {memory(trial.metrics[metric])}") for trial in known
                ],
                "hovertemplate": "%{text}<extra></extra>",
            }
        )
    values = [
        trial.metrics[metric]
        for trial in trials
        for metric in (ESTIMATED, MEASURED)
        if metric in trial.metrics
    ]
    log = min(values) > 0 and max(values) > 20 * min(values)
    return figure(
        [one for one in data if one["x"]],
        320,
        xaxis={"title": {"text": "trial"}},
        yaxis=metric_axis(MEASURED, log=log),
    )


def _bars(modules: Mapping[str, float]) -> Figure:
    names = list(modules)[::-1]
    bars = {
        "type": "bar",
        "orientation": "h",
        "y": [escape(name) or "model" for name in names],
        "x": [modules[name] for name in names],
        "text": [memory(modules[name]) for name in names],
        "marker": {"color": GREY},
        "hovertemplate": "%{y}: %{text}<extra></extra>",
    }
    height = 80 + 26 * len(names)
    return figure([bars], height, xaxis=metric_axis(MEASURED), yaxis={"type": "category"})
