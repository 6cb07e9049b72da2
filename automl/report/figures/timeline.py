"""The use of the workers: every attempt on its slot."""

import heapq
from collections.abc import Sequence
from dataclasses import replace

from automl.core.standings import INFEASIBLE, Standings
from automl.report.plotting import STATE_COLOURS, Figure, Panel, figure, rounded
from automl.report.record import Attempt, Record

MAX_BARS = 1500
TITLE = "Use of the workers"


def panel(record: Record) -> Panel:
    """A bar for each attempt."""
    outcomes = Standings.of(record.snapshot).outcomes
    attempts = [
        replace(attempt, state=INFEASIBLE)
        if attempt.state in ("completed", "stopped") and outcomes[attempt.trial] == INFEASIBLE
        else attempt
        for attempt in record.attempts
        if attempt.ended > attempt.started
    ]
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
    if len(attempts) > MAX_BARS:
        caption += f" The last {MAX_BARS} attempts are drawn."
    bars = _bars(attempts[-MAX_BARS:], lanes[-MAX_BARS:], count)
    return Panel("timeline", TITLE, caption, (bars,))


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
