"""Several goals: the Pareto front and its hypervolume. One goal: its cost in time and memory."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from automl.core import Trial, text
from automl.core.metrics import PEAK_MEMORY
from automl.report.axis_range import AxisRange, clipped
from automl.report.plotting import (
    BLUE,
    GREY,
    ORANGE,
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
SPREAD = 20.0  # of values, from which an axis is logarithmic
SAMPLES = 4096  # for the hypervolume of more than two goals


def panel(record: Record) -> Panel:
    """The front of several goals, or the costs of one."""
    return _fronts(record) if len(record.snapshot.goals) > 1 else _costs(record)


def _fronts(record: Record) -> Panel:
    goals = record.snapshot.goals
    rows = [(t, [record.value(t, i) for i in range(len(goals))]) for t in record.trials]
    known = [
        (t, np.array([v for v in values if v is not None]))
        for t, values in rows
        if None not in values
    ]
    if len(known) < 2:
        return Panel("pareto", "Pareto front", "Fewer than two trials have a value of every goal.")
    front = {trial.number for trial in record.snapshot.pareto}
    figures = [_pair(record, known, front, 0, other) for other in range(1, len(goals))]
    losses = np.array(
        [[clipped(g.loss(v)) for g, v in zip(goals, values, strict=True)] for _, values in known]
    )
    volumes = _hypervolumes(losses)
    trace = {
        "type": "scatter",
        "mode": "lines",
        "x": [trial.number for trial, _ in known],
        "y": rounded(volumes),
        "line": {"color": BLUE, "width": 3, "shape": "hv"},
        "name": "hypervolume",
    }
    figures.append(
        figure(
            [trace],
            280,
            xaxis={"title": {"text": "trial"}},
            yaxis={"title": {"text": "hypervolume"}, "rangemode": "tozero"},
        )
    )
    many = "1 configuration is" if len(front) == 1 else f"{len(front)} configurations are"
    caption = (
        f"{many} on the front: no other is at least as good in every goal "
        "and better in one. Below: the hypervolume that the front dominates, as a share of the box "
        f"between the worst and the best observed value of each goal. It is now {volumes[-1]:.3f}."
    )
    return Panel("pareto", "Pareto front", caption, tuple(figures))


def _pair(
    record: Record, known: list[tuple[Trial, Any]], front: set[int], i: int, j: int
) -> Figure:
    one, other = record.snapshot.goals[i].metric, record.snapshot.goals[j].metric
    ordered = sorted(known, key=lambda item: float(item[1][i]))
    values = [[float(values[index]) for _, values in known] for index in (i, j)]
    data = [
        _cloud(
            [(t, v[i], v[j]) for t, v in ordered if t.number not in front],
            one,
            other,
            "trials",
            GREY,
            "markers",
        ),
        _cloud(
            [(t, v[i], v[j]) for t, v in ordered if t.number in front],
            one,
            other,
            "Pareto front",
            BLUE,
            "both",
        ),
    ]
    axes = _axes((one, other), values)
    right, up = (record.snapshot.goals[index].maximize for index in (i, j))
    return figure(data, 420, xaxis=axes[0], yaxis=axes[1], **_better(right, up))


def _better(right: bool, up: bool) -> dict[str, Any]:
    """A mark in the corner that is better."""
    arrow = ("↗" if up else "↘") if right else ("↖" if up else "↙")
    place = {"xref": "paper", "yref": "paper", "x": 0.98 * right + 0.01, "y": 0.98 * up + 0.01}
    mark = {**place, "text": f"{arrow} better", "showarrow": False, "font": {"color": GREY}}
    return {"annotations": [mark], "meta": {"corner": {"right": right, "up": up}}}


def _axes(names: Sequence[str], columns: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """The axes of metrics. Sizes and times of very different trials are on logarithmic ones."""
    limits = [AxisRange.of(column, spread=SPREAD) for column in columns]
    return [limited_axis(name, limit) for name, limit in zip(names, limits, strict=True)]


def _cloud(
    points: list[tuple[Trial, float, float]],
    one: str,
    other: str,
    name: str,
    colour: str,
    mode: str,
) -> dict[str, Any]:
    many = len(points) > MANY
    if many:
        points = [points[row] for row in spread([(x, y) for _, x, y in points], 200, 80)]
    texts = [
        f"trial {t.number}"
        if many
        else hover(t, f"{one} {text.number(x)}", f"{other} {text.number(y)}")
        for t, x, y in points
    ]
    return {
        "type": "scatter",
        "mode": "lines+markers" if mode == "both" else "markers",
        "line": {"dash": "dot", "width": 1.5},
        "name": name,
        "x": rounded(x for _, x, _ in points),
        "y": rounded(y for _, _, y in points),
        "marker": {
            "color": colour,
            "size": 4 if many else 8,
            "opacity": 0.5 if many else 0.8,
        },
        "customdata": [trial.number for trial, _, _ in points],
        "text": texts,
        "hoverinfo": "text",
        "cliponaxis": False,
    }


def _costs(record: Record) -> Panel:
    """The goal against the first metric of speed with values, and against memory."""
    title, scored, best = "Cost in time and memory", record.scored(), record.snapshot.best
    figures = []
    for metrics in (record.speed_metrics(), (PEAK_MEMORY,)):
        names = [metric.name for metric in metrics]
        metric = next((n for n in names if sum(n in t.metrics for t, _ in scored) >= 2), None)
        if metric is None or metric == record.goal.metric:
            continue
        points = [(t, t.metrics[metric], v) for t, v in scored if metric in t.metrics]
        rest = [point for point in points if point[0] != best]
        chosen = [point for point in points if point[0] == best]
        star = {"marker": {"color": ORANGE, "size": 13, "symbol": "star"}}
        goal = record.goal.metric
        data = [
            _cloud(rest, metric, goal, "trials", GREY, "markers"),
            _cloud(chosen, metric, goal, "the best", ORANGE, "markers") | star,
        ]
        axes = _axes((metric, goal), list(zip(*points, strict=True))[1:])
        fast = any(one.name == metric and one.direction == "maximize" for one in metrics)
        corner = _better(fast, record.goal.maximize)
        figures.append(figure(data, 340, xaxis=axes[0], yaxis=axes[1], **corner))
    if not figures:
        return Panel(
            "pareto",
            title,
            "There is one goal, and no trial reported speed or memory.",
        )
    caption = (
        f"The {record.goal.metric} of each trial against its time and memory. Trials beyond an "
        "axis are triangles at its edge."
    )
    return Panel("pareto", title, caption, tuple(figures))


def _hypervolumes(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """The dominated share of the box between best and worst, after each of `n x g` losses: `n`.

    It is exact for two goals; for more it is the share of 4,096 fixed points.
    """
    low, high = losses.min(0), losses.max(0)
    extent = np.where(high > low, high - low, 1.0)
    unit = (losses - low) / extent
    return _exact(unit) if unit.shape[1] == 2 else _sampled(unit)


def _exact(unit: NDArray[np.float64]) -> NDArray[np.float64]:
    """Keeps the front sorted by the first goal."""
    found, front, volume = np.empty(len(unit)), np.empty((0, 2)), 0.0
    for i, point in enumerate(unit):
        if not (front <= point).all(1).any():
            front = np.concatenate([front[~(point <= front).all(1)], point[None]])
            front = front[np.argsort(front[:, 0])]
            right = np.append(front[1:, 0], 1.0)
            volume = float(((right - front[:, 0]) * (1.0 - front[:, 1])).sum())
        found[i] = volume
    return found


def _sampled(unit: NDArray[np.float64]) -> NDArray[np.float64]:
    points = np.random.default_rng(0).random((SAMPLES, unit.shape[1]))
    covered, found = np.zeros(SAMPLES, dtype=bool), np.empty(len(unit))
    for i, row in enumerate(unit):
        covered |= (row <= points).all(1)
        found[i] = covered.mean()
    return found
