"""The use of the workers: every attempt on its slot, and the number of busy slots."""

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np

from automl.report.plotting import BLUE, STATE_COLOURS, Figure, Panel, figure, rounded
from automl.report.record import Attempt, Record

MAX_BARS = 1500
MAX_POINTS = 600
TITLE = "Use of the workers"


def panel(record: Record) -> Panel:
    """Bars of the attempts if there are not too many, and the number of busy slots."""
    attempts = [attempt for attempt in record.attempts if attempt.ended > attempt.started]
    if not attempts:
        return Panel("timeline", TITLE, "No attempt has been recorded.")
    end = max(record.snapshot.seconds, max(attempt.ended for attempt in attempts))
    lanes, count = slots(attempts)
    busy = sum(attempt.ended - attempt.started for attempt in attempts)
    caption = (
        f"Up to {count} trials ran at the same time. From the first start to the last end "
        f"{busy / (count * (end - attempts[0].started)):.0%} of these slots were used. "
        "A trial of several ranks is one bar."
    )
    figures = _busy(attempts, end)
    if len(attempts) <= MAX_BARS:
        figures.insert(0, _bars(attempts, lanes, count))
    return Panel("timeline", TITLE, caption, tuple(figures))


def slots(attempts: Sequence[Attempt]) -> tuple[list[int], int]:
    """A lane for each attempt, so that none overlap, and the number of lanes."""
    free: list[int] = []
    running: list[tuple[float, int]] = []
    lanes: list[int] = []
    count = 0
    for attempt in attempts:
        while running and running[0][0] <= attempt.started:
            heapq.heappush(free, heapq.heappop(running)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, count = count, count + 1
        heapq.heappush(running, (attempt.ended, lane))
        lanes.append(lane)
    return lanes, count


def _bars(attempts: Sequence[Attempt], lanes: list[int], count: int) -> Figure:
    states = sorted({attempt.state for attempt in attempts}, key=list(STATE_COLOURS).index)
    data = []
    for state in states:
        rows = [(a, lane) for a, lane in zip(attempts, lanes, strict=True) if a.state == state]
        words = [
            f"trial {a.trial}" + (f", attempt {a.number}" if a.number > 1 else "") for a, _ in rows
        ]
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": state,
                "base": rounded([a.started for a, _ in rows], 7),
                "x": rounded([a.ended - a.started for a, _ in rows]),
                "y": [lane + 1 for _, lane in rows],
                "width": 0.8,  # otherwise the thickness depends on the state
                "marker": {"color": STATE_COLOURS[state], "line": {"color": "white", "width": 1}},
                "text": [str(a.trial) for a, _ in rows] if len(attempts) < 150 else None,
                "customdata": [a.trial for a, _ in rows],
                "textposition": "inside",
                "insidetextanchor": "middle",
                "hovertext": [
                    f"{word}: {a.ended - a.started:.1f} s"
                    for (a, _), word in zip(rows, words, strict=True)
                ],
                "hoverinfo": "text",
            }
        )
    return figure(
        data,
        min(140 + 34 * count, 700),
        barmode="overlay",
        xaxis={"title": {"text": "sweep time (seconds)"}},
        yaxis={
            "title": {"text": "slot"},
            "dtick": max(1, count // 8),
            "tick0": 1,
            "showgrid": False,
            "range": [0.4, count + 0.6],
        },
        margin={"l": 70, "r": 20, "t": 40, "b": 50},
    )


def _busy(attempts: Sequence[Attempt], end: float) -> list[Figure]:
    """The number of running trials at each change, or in means if there are very many changes.

    There is no figure if every attempt is too short to be drawn.
    """
    grain = end / 1000 or 1.0  # shorter gaps between trials are not drawn
    steps: dict[float, int] = {}
    for attempt in attempts:
        for at, step in ((attempt.started, 1), (attempt.ended, -1)):
            steps[round(at / grain) * grain] = steps.get(round(at / grain) * grain, 0) + step
    changes = sorted((at, step) for at, step in steps.items() if step)
    if not changes:
        return []
    times = np.array([0.0] + [at for at, _ in changes] + [max(end, changes[-1][0])])
    counts = np.cumsum([0] + [step for _, step in changes] + [0])
    shape = "hv"
    if len(times) > MAX_POINTS:
        edges = np.linspace(0.0, end, MAX_POINTS + 1)
        area = np.interp(
            edges, times, np.concatenate([[0.0], np.cumsum(counts[:-1] * np.diff(times))])
        )
        times, counts, shape = edges[:-1], np.diff(area) / np.diff(edges), "linear"
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines",
        "x": rounded(times.tolist(), 7),
        "y": rounded(counts.tolist(), 4),
        "fill": "tozeroy",
        "line": {"color": BLUE, "shape": shape, "width": 1.5},
        "hovertemplate": "%{y} busy at %{x} s<extra></extra>",
    }
    drawn = figure(
        [trace],
        240,
        xaxis={"title": {"text": "sweep time (seconds)"}},
        yaxis={"title": {"text": "trials running"}, "rangemode": "tozero"},
    )
    return [drawn]
