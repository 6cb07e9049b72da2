"""Progress of the best as a drawing that needs no script: it shows before anything else on the page is ready."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from automl.core import text
from automl.core.trial import Trial, TrialState

from .draw import BLUE, GREY, GRID, RED, escape, linear_ticks, spread
from .record import Record

WIDTH, HEIGHT = 1000.0, 250.0
LEFT, RIGHT, TOP, FOOT = 62.0, 6.0, 24.0, 40.0
INK = "#57606a"
Point = tuple[float, float]


def sketch(record: Record) -> str:
    """An SVG of the trials and of the best so far over the sweep's time; empty where fewer than two ended."""
    ended = sorted(
        (t for t in record.trials if t.ended is not None), key=lambda t: (t.ended or 0.0, t.number)
    )
    points = [(t.ended or 0.0, value) for t in ended if (value := record.value(t)) is not None]
    if len(points) < 2:
        return ""
    end = max(record.snapshot.seconds, points[-1][0])
    begun = min(
        [trial.started for trial in record.trials if trial.started is not None], default=0.0
    )
    frame = _Frame(begun, max(end, begun + 1e-9), *window(record, [value for _, value in points]))
    goal = escape(record.goal.metric)
    best = sorted((value for _, value in points), key=record.goal.loss)[0]
    label = f"best {goal} so far: {escape(text.number(best))}"
    parts = [
        f'<svg class="sketch" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{label}" font-size="12">',
        *_axes(frame, goal),
        f'<g fill="{GREY}" opacity="0.5">{"".join(_dots(points, frame))}</g>',
        *_failures(ended, frame),
        f'<path d="{_path(record, points, frame)}" fill="none" stroke="{BLUE}" stroke-width="2.5"/>',
        *_legend(any(trial.state is TrialState.FAILED for trial in ended)),
        "</svg>",
    ]
    return "".join(parts)


def window(record: Record, values: Sequence[float]) -> tuple[float, float]:
    """The part of the value axis that matters: without the worst fifth of the trials where these are far off."""
    ordered = sorted(values, key=record.goal.loss)
    best, usual, worst = ordered[0], ordered[int(0.8 * (len(ordered) - 1))], ordered[-1]
    far = len(values) >= 8 and abs(worst - best) >= 5 * abs(usual - best) and usual != best
    other = usual if far else worst
    room = 0.08 * abs(other - best) or 0.5
    return min(best, other) - room, max(best, other) + room


class _Frame:
    """From seconds and values to coordinates; what is beyond the window lies on its edge."""

    def __init__(self, first: float, last: float, low: float, high: float) -> None:
        self.first, self.last, self.low, self.high = first, last, low, high

    def x(self, at: float) -> float:
        share = (at - self.first) / (self.last - self.first)
        return round(LEFT + (WIDTH - LEFT - RIGHT) * share, 1)

    def y(self, value: float) -> float:
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(HEIGHT - FOOT - (HEIGHT - FOOT - TOP) * share, 1)


def _axes(frame: _Frame, goal: str) -> Iterator[str]:
    begun, end = frame.first, frame.last
    for tick in linear_ticks(frame.low, frame.high, 6):
        y = frame.y(tick)
        yield f'<path d="M{LEFT:g},{y} H{WIDTH - RIGHT:g}" stroke="{GRID}"/>'
        yield f'<text x="{LEFT - 8:g}" y="{y + 4:g}" text-anchor="end" fill="{INK}">{text.number(tick)}</text>'
    span = end - begun
    unit, name = (
        (3600.0, "hours")
        if span >= 3 * 3600
        else (60.0, "minutes")
        if span >= 180
        else (1.0, "seconds")
    )
    for tick in linear_ticks(begun / unit, end / unit, 8):
        x, anchor = frame.x(tick * unit), "end" if tick * unit > end - 0.03 * span else "middle"
        yield f'<text x="{x}" y="{HEIGHT - FOOT + 17:g}" text-anchor="{anchor}" fill="{INK}">{text.number(tick)}</text>'
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield f'<text x="{middle:g}" y="{HEIGHT - 5:g}" text-anchor="middle" fill="{INK}">{name} of the sweep</text>'
    yield f'<text x="0" y="12" fill="{INK}" font-weight="600">{goal}</text>'


def _dots(points: Sequence[Point], frame: _Frame) -> Iterator[str]:
    places = [(frame.x(at), frame.y(value)) for at, value in points]
    for row in spread(places, 250, 80):
        yield f'<circle cx="{places[row][0]}" cy="{places[row][1]}" r="2.5"/>'


def _failures(ended: Sequence[Trial], frame: _Frame) -> Iterator[str]:
    foot = HEIGHT - FOOT
    xs = sorted(
        {round(frame.x(trial.ended or 0.0)) for trial in ended if trial.state is TrialState.FAILED}
    )
    crosses = "".join(f"M{x - 3},{foot - 3:g} l6,6 m0,-6 l-6,6" for x in xs)
    if crosses:
        yield f'<path d="{crosses}" stroke="{RED}" stroke-width="1.5" fill="none"/>'


def _path(record: Record, points: Sequence[Point], frame: _Frame) -> str:
    steps: list[Point] = []
    for at, value in points:
        if not steps or record.goal.better(value, steps[-1][1]):
            steps.append((at, value))
    corners = "".join(f" H{frame.x(at)} V{frame.y(value)}" for at, value in steps[1:])
    return f"M{frame.x(steps[0][0])},{frame.y(steps[0][1])}{corners} H{WIDTH - RIGHT:g}"


def _legend(failures: bool) -> Iterator[str]:
    items = [("best so far", f'<path d="M0,-4 h22" stroke="{BLUE}" stroke-width="2.5"/>')]
    items.append(("a trial", f'<circle cx="12" cy="-4" r="3" fill="{GREY}"/>'))
    if failures:
        items.append(
            (
                "a trial that failed",
                f'<path d="M9,-7 l6,6 m0,-6 l-6,6" stroke="{RED}" stroke-width="1.5"/>',
            )
        )
    x = WIDTH - RIGHT - 120 * len(items) - 20
    for name, mark in items:
        yield f'<g transform="translate({x:g},14)">{mark}<text x="28" fill="{INK}">{name}</text></g>'
        x += 120
