"""Learning curves: the reports of each trial."""

from itertools import pairwise
from typing import Any

import numpy as np

from automl.core import ReportPoint, Trial, TrialState, text
from automl.report.axis_range import AxisRange
from automl.report.plotting import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    Figure,
    Panel,
    figure,
    limited_axis,
    rounded,
)
from automl.report.record import Record

MAX_CURVES = 300
MAX_POINTS = 60
TITLE = "Learning curves"
Curves = list[tuple[Trial, list[ReportPoint]]]


def panel(record: Record) -> Panel:
    """The goal at each report, with marks for pauses, resumptions and ends."""
    metric = record.goal.metric
    reported = [
        (t, points)
        for t in record.trials
        if (points := [p for p in t.reports if metric in p.metrics])
    ]
    if not reported:
        return Panel("curves", TITLE, f"No trial reported {metric} before its end.")
    chosen = _chosen(record, reported)
    limits = AxisRange.of(p.metrics[metric] for _, points in chosen for p in points)
    caption = (
        f"The {metric} at each report of each trial; the best trial is blue. Circles are ends of "
        "completed trials, crosses ends of stopped ones, bars pauses, triangles resumptions."
    )
    if len(chosen) < len(reported):
        caption += (
            f" Of {len(reported)} curves, the {len(chosen) // 2} best and as many others are shown."
        )
    return Panel("curves", TITLE, caption, (_draw(record, chosen, limits),))


def _chosen(record: Record, reported: Curves) -> Curves:
    if len(reported) <= MAX_CURVES:
        return reported
    rank = {trial.number: i for i, (trial, _) in enumerate(record.scored())}
    ordered = sorted(reported, key=lambda item: rank.get(item[0].number, len(rank)))
    rest = (
        np.random.default_rng(0).permutation(len(ordered) - MAX_CURVES // 2)[: MAX_CURVES // 2]
        + MAX_CURVES // 2
    )
    return [*ordered[: MAX_CURVES // 2], *(ordered[i] for i in sorted(rest))]


def _draw(record: Record, chosen: Curves, limits: AxisRange) -> Figure:
    best = record.snapshot.best
    timed = record.goal.within is not None
    others = [(t, p) for t, p in chosen if best is None or t.number != best.number]
    best_lines = (
        _lines(record, [(t, p)], BLUE, 3.0, f"trial {t.number}, the best")
        for t, p in chosen
        if t == best
    )
    data = [
        _lines(record, others, GREY, 1.2, "trials"),
        *best_lines,
        *_marks(record, chosen),
    ]
    xaxis: dict[str, Any] = {"title": {"text": "training seconds" if timed else "step"}}
    first = max(min(points[0].step for _, points in chosen), 1)
    last = max(points[-1].step for _, points in chosen)
    if not timed and last > 200 * first:
        xaxis |= {"type": "log", "range": [np.log10(first), np.log10(last) + 0.05]}
    return figure(data, 420, xaxis=xaxis, yaxis=limited_axis(record.goal.metric, limits))


def _x(record: Record, point: ReportPoint) -> float:
    return float(point.step) if record.goal.within is None else point.seconds


def _lines(
    record: Record,
    curves: Curves,
    colour: str,
    width: float,
    name: str,
) -> dict[str, Any]:
    """Several curves as one trace, with gaps between them."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    texts: list[str] = []
    for trial, points in curves:
        thinned = text.thinned(points, MAX_POINTS)
        xs += [*(_x(record, p) for p in thinned), None]
        ys += [*(p.metrics[record.goal.metric] for p in thinned), None]
        values = (text.number(p.metrics[record.goal.metric]) for p in thinned)
        texts += [*(f"trial {trial.number}: {value}" for value in values), ""]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": rounded(xs),
        "y": rounded(ys),
        "text": texts,
        "hoverinfo": "text",
        "opacity": 0.5 if colour == GREY and len(curves) > 20 else 1.0,
        "line": {"color": colour, "width": width},
    }


def _marks(record: Record, chosen: Curves) -> list[dict[str, Any]]:
    """Marks of ends, pauses and resumptions."""
    ends = {
        TrialState.COMPLETED: ("completed", "circle", GREEN),
        TrialState.STOPPED: ("stopped", "x", ORANGE),
        TrialState.PAUSED: ("paused", "line-ns-open", PURPLE),
    }
    groups: dict[tuple[str, str, str], list[tuple[Trial, ReportPoint]]] = {}
    for trial, points in chosen:
        if trial.state in ends:
            groups.setdefault(ends[trial.state], []).append((trial, points[-1]))
        for before, after in pairwise(points):
            if before.attempt != after.attempt:
                groups.setdefault(("resumed", "triangle-right", PURPLE), []).append((trial, before))
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": rounded([_x(record, point) for _, point in items]),
            "y": rounded(p.metrics[record.goal.metric] for _, p in items),
            "marker": {
                "symbol": symbol,
                "color": colour,
                "size": 9,
                "line": {"width": 2, "color": colour},
            },
            "customdata": [trial.number for trial, _ in items],
            "text": [f"trial {trial.number} {name}" for trial, _ in items],
            "hoverinfo": "text",
            "cliponaxis": False,
        }
        for (name, symbol, colour), items in groups.items()
    ]
