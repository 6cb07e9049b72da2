"""The best so far as a drawing that needs no script: it shows before anything else on the page is ready."""

from __future__ import annotations

from collections.abc import Sequence

from . import text
from .draw import BLUE, GREY, escape
from .record import Record

WIDTH, HEIGHT, FOOT = 1000.0, 120.0, 18.0
MOST_POINTS = 400


def sketch(record: Record) -> str:
    """An SVG of the trials and of the best so far over the sweep's time; empty where fewer than two ended."""
    ended = sorted((t for t in record.trials if t.ended is not None), key=lambda t: (t.ended or 0.0, t.number))
    points = [(t.ended or 0.0, value) for t in ended if (value := record.value(t)) is not None]
    if len(points) < 2:
        return ""
    better = record.goal.better
    steps: list[tuple[float, float]] = []
    for at, value in points:
        if not steps or better(value, steps[-1][1]):
            steps.append((at, value))
    ordered = sorted((value for _, value in points), key=record.goal.loss)
    best, usual = ordered[0], ordered[int(0.8 * (len(ordered) - 1))]
    place = _Place(points[0][0], max(record.snapshot.seconds, points[-1][0]), best, usual)
    corners = [place(*step).split(",") for step in steps]
    path = f"M{','.join(corners[0])}" + "".join(f" H{x} V{y}" for x, y in corners[1:])
    goal = escape(record.goal.metric)
    label = f"best {goal} so far: {escape(text.number(best))}"
    return (
        f'<svg class="sketch" viewBox="0 0 {WIDTH:g} {HEIGHT + FOOT:g}" role="img" aria-label="{label}">'
        f'<g fill="{GREY}" opacity="0.55">{_dots(points, place)}</g>'
        f'<path d="{path} H{WIDTH:g}" fill="none" stroke="{BLUE}" stroke-width="2.5"/>'
        f'<text x="0" y="{HEIGHT + FOOT - 3:g}" font-size="12" fill="#57606a">{goal}, trial by trial over '
        f"{text.duration(record.snapshot.seconds)}; the line is the best so far</text></svg>"
    )


class _Place:
    """From seconds and values to coordinates; the best lies above, what is much worse than usual at the foot."""

    def __init__(self, first: float, last: float, best: float, usual: float) -> None:
        self.first, self.span = first, (last - first) or 1.0
        self.best, self.depth = best, (usual - best) or 1.0

    def __call__(self, at: float, value: float) -> str:
        depth = min(max((value - self.best) / self.depth, 0.0), 1.15)
        return f"{WIDTH * (at - self.first) / self.span:.1f},{6 + (HEIGHT - 20) * depth / 1.15:.1f}"


def _dots(points: Sequence[tuple[float, float]], place: _Place) -> str:
    step = -(-len(points) // MOST_POINTS)
    found = (place(*point).split(",") for point in points[::step])
    return "".join(f'<circle cx="{x}" cy="{y}" r="2.5"/>' for x, y in found)
