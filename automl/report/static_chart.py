"""The best value over time as an SVG, which shows before the scripts of the page have run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from automl.core import Trial, TrialState, text
from automl.core.curve import improvements

from .axis_range import NARROWEST, clipped, padded
from .plotting import BLUE, GREY, RED, escape, linear_ticks, spread
from .record import Record

WIDTH, HEIGHT = 1000.0, 250.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 6.0, 24.0, 40.0  # margins
INK = "currentColor"
Point = tuple[float, float]


def static_chart(record: Record) -> str:
    """An SVG of the trials and the best so far over time; empty if fewer than two have a value."""
    points = [
        (t.ended or 0.0, value) for t in record.ended if (value := record.value(t)) is not None
    ]
    if len(points) < 2:
        return ""
    end = max(record.snapshot.seconds, points[-1][0])
    frame = _Frame(0.0, max(end, 1e-9), *window(record, [value for _, value in points]))
    goal = escape(record.goal.metric)
    best = sorted((value for _, value in points), key=record.goal.loss)[0]
    label = f"best {goal} so far: {escape(text.number(best))}"
    parts = [
        f'<svg class="static-chart" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img"',
        f' aria-label="{label}" font-size="12">',
        *_axes(frame, goal),
        f'<g fill="{GREY}" opacity="0.5">{"".join(_dots(points, frame))}</g>',
        *_failures(record.ended, frame),
        f'<path d="{_path(record, points, frame)}" fill="none" ',
        f'stroke="{BLUE}" stroke-width="2.5"/>',
        *_legend(any(trial.state is TrialState.FAILED for trial in record.ended)),
        "</svg>",
    ]
    return "".join(parts)


def window(record: Record, values: Sequence[float]) -> tuple[float, float]:
    """The range of the value axis; the worst fifth of the trials is left out if it is far off."""
    ordered = sorted(map(clipped, values), key=record.goal.loss)
    best, usual, worst = ordered[0], ordered[int(0.8 * (len(ordered) - 1))], ordered[-1]
    far = len(values) >= 8 and abs(worst - best) >= 5 * abs(usual - best) and usual != best
    other = usual if far else worst
    return padded(min(best, other), max(best, other))


@dataclass(frozen=True)
class _Frame:
    """Maps seconds and values to coordinates; values beyond the range lie on its edge."""

    first: float
    last: float
    low: float
    high: float

    def x(self, at: float) -> float:
        share = (at - self.first) / max(self.last - self.first, NARROWEST)
        return round(LEFT + (WIDTH - LEFT - RIGHT) * share, 1)

    def y(self, value: float) -> float:
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * share, 1)


def _axes(frame: _Frame, goal: str) -> Iterator[str]:
    started, end = frame.first, frame.last
    for tick in linear_ticks(frame.low, frame.high, 6):
        y = frame.y(tick)
        yield f'<path d="M{LEFT:g},{y} H{WIDTH - RIGHT:g}" stroke="{INK}" stroke-opacity="0.15"/>'
        yield _text(LEFT - 8, y + 4, text.number(tick), "end")
    span = end - started
    units = ((3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))
    unit, name = next((unit for unit in units if span >= 3 * unit[0]), units[-1])
    for tick in linear_ticks(started / unit, end / unit, 8):
        anchor = "end" if tick * unit > end - 0.03 * span else "middle"
        yield _text(frame.x(tick * unit), HEIGHT - BOTTOM + 17, text.number(tick), anchor)
    yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 5, f"sweep time ({name})", "middle")
    yield f'<text x="0" y="12" fill="{INK}" font-weight="600">{goal}</text>'


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{INK}">{words}</text>'


def _dots(points: Sequence[Point], frame: _Frame) -> Iterator[str]:
    places = [(frame.x(at), frame.y(value)) for at, value in points]
    for row in spread(places, 250, 80):
        yield f'<circle cx="{places[row][0]}" cy="{places[row][1]}" r="2.5"/>'


def _failures(ended: Sequence[Trial], frame: _Frame) -> Iterator[str]:
    bottom = HEIGHT - BOTTOM
    xs = sorted(
        {round(frame.x(trial.ended or 0.0)) for trial in ended if trial.state is TrialState.FAILED}
    )
    crosses = "".join(f"M{x - 3},{bottom - 3:g} l6,6 m0,-6 l-6,6" for x in xs)
    if crosses:
        yield f'<path d="{crosses}" stroke="{RED}" stroke-width="1.5" fill="none"/>'


def _path(record: Record, points: Sequence[Point], frame: _Frame) -> str:
    steps = list(improvements(record.goal, points))
    corners = "".join(f" H{frame.x(at)} V{frame.y(value)}" for at, value in steps[1:])
    return f"M{frame.x(steps[0][0])},{frame.y(steps[0][1])}{corners} H{WIDTH - RIGHT:g}"


def _legend(failures: bool) -> Iterator[str]:
    items = [
        ("best so far", f'<path d="M0,-4 h22" stroke="{BLUE}" stroke-width="2.5"/>'),
        ("trial", f'<circle cx="12" cy="-4" r="3" fill="{GREY}"/>'),
        ("failed trial", f'<path d="M9,-7 l6,6 m0,-6 l-6,6" stroke="{RED}" stroke-width="1.5"/>'),
    ][: 3 if failures else 2]
    x = WIDTH - RIGHT - 120 * len(items) - 20
    for name, mark in items:
        label = f'<text x="28" fill="{INK}">{name}</text>'
        yield f'<g transform="translate({x:g},14)">{mark}{label}</g>'
        x += 120
