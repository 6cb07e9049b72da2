"""Shared by all figures: colours, layouts, axes of parameters, and short numbers.

A figure is plain data for plotly.js, `{"data": [...], "layout": {...}}`, because plotly's Python
objects take seconds for thousands of trials. `plotly.graph_objects.Figure(figure)` makes one of it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from automl.core import Trial, text
from search_spaces import Choice, Float, Int, Parameter

from .axis_range import NARROWEST, AxisRange, clipped, padded

Figure = dict[str, Any]

# The palette of Okabe and Ito, for colour-blind readers too.
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, GREY = (
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#f0e442", "#8a8f98",
)  # fmt: skip
STATE_COLOURS: Final[Mapping[str, str]] = {
    "completed": GREEN,
    "infeasible": PURPLE,
    "stopped": ORANGE,
    "failed": RED,
    "paused": PURPLE,
    "running": SKY,
    "waiting": GREY,
    "interrupted": YELLOW,
}
SCALE: Final = [[0, "#e3e6ea"], [0.5, "#86b6dc"], [1, "#08306b"]]
GRID: Final = "#e6e8eb"
INK: Final = "#22272e"


@dataclass(frozen=True)
class Panel:
    """A section of the report with figures.

    Args:
        key: id of its HTML element.
        caption: what the figures show and how to read them; why, if there is none.
        figures: drawn below each other.
    """

    key: str
    title: str
    caption: str
    figures: Sequence[Figure] = field(default_factory=tuple)


def figure(data: list[dict[str, Any]], height: int = 380, **layout: Any) -> Figure:
    """A figure in the style of the report; `layout` may change it."""
    base: dict[str, Any] = {
        "height": height,
        "margin": {"l": 70, "r": 20, "t": 20, "b": 50},
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": INK},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hoverlabel": {"align": "left"},
        "modebar": {"bgcolor": "rgba(255,255,255,0.8)", "color": GREY, "activecolor": BLUE},
        "legend": {"orientation": "h", "y": 1.12, "x": 0},
    }
    for key in [key for key in layout if key.startswith(("xaxis", "yaxis"))]:
        layout[key] = {
            "gridcolor": GRID,
            "zeroline": False,
            "automargin": True,
            "ticklabelstandoff": 6,
            **layout[key],
        }
    return {"data": data, "layout": base | layout}


def hover(trial: Trial, *lines: str) -> str:
    """The text of a tooltip: the trial, `lines`, its configuration."""
    params = [f"{name} = {text.number(value)}" for name, value in trial.params.items()]
    return "<br>".join(
        [f"<b>trial {trial.number}</b>", *(escape(line) for line in (*lines, *params))]
    )


def escape(raw: str) -> str:
    """Escape text for HTML and plotly; control characters are escaped as in a terminal."""
    return (
        text.printable(raw, keep="\n\t")
        .replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
        .replace('"', "&quot;")
    )


def rounded(values: Iterable[float | None], digits: int = 5) -> list[float | None]:
    """Numbers with few digits; None for those that are not finite."""
    return [
        None if value is None or not math.isfinite(value) else float(f"{clipped(value):.{digits}g}")
        for value in values
    ]


def spread(points: Sequence[tuple[float, float]], columns: int, rows: int) -> list[int]:
    """Indices of the points to draw: the first in each cell of a grid, or all of few points."""
    if len(points) <= columns:
        return list(range(len(points)))
    points = [(clipped(x), clipped(y)) for x, y in points]
    xs, ys = zip(*points, strict=True)
    left, top = min(xs), min(ys)
    width, height = (max(max(ends) - min(ends), NARROWEST) for ends in (xs, ys))
    cells: dict[tuple[int, int], int] = {}
    for i, (x, y) in enumerate(points):
        cells.setdefault((int(columns * (x - left) / width), int(rows * (y - top) / height)), i)
    return sorted(cells.values())


def position(parameter: Parameter, value: Any) -> float:
    """The position of a value on the axis of a parameter: logarithm, index or the value itself."""
    if isinstance(parameter, Choice):
        return float(parameter.index(value)) if value in parameter.choices else -1.0
    assert isinstance(parameter, Float | Int), "there are three kinds of parameters"
    return math.log10(value) if parameter.log and value > 0 else clipped(float(value))


def place(parameter: Parameter, value: Any, number: int) -> float:
    """The position of a trial's value; trials of the same choice do not overlap."""
    aside = (number * 0.618 % 1.0 - 0.5) * 0.5 if isinstance(parameter, Choice) else 0.0
    return position(parameter, value) + aside


def axis(parameter: Parameter) -> dict[str, Any]:
    """The axis of a parameter for plotly; its unit is that of `position`."""
    if isinstance(parameter, Choice):
        return {
            "title": {"text": parameter.name},
            "tickvals": list(range(len(parameter.choices))),
            "ticktext": [escape(text.number(choice)) for choice in parameter.choices],
            "range": [-0.5, len(parameter.choices) - 0.5],
        }
    assert isinstance(parameter, Float | Int), "there are three kinds of parameters"
    low, high = position(parameter, parameter.low), position(parameter, parameter.high)
    ticks = log_ticks(parameter.low, parameter.high) if parameter.log else linear_ticks(low, high)
    if isinstance(parameter, Int):
        ticks = sorted({float(round(tick)) for tick in ticks})
    return {
        "title": {"text": parameter.name},
        "range": list(padded(low, high)),
        "tickvals": rounded([position(parameter, tick) for tick in ticks]),
        "ticktext": [text.number(int(tick) if tick.is_integer() else tick) for tick in ticks],
    }


def metric_axis(metric: str, *, log: bool = False) -> dict[str, Any]:
    """The axis of a metric for plotly."""
    return {"title": {"text": escape(metric)}, **({"type": "log"} if log else {})}


def limited_axis(metric: str, limits: AxisRange) -> dict[str, Any]:
    """The axis of a metric for plotly, over this range."""
    return limits.axis(metric_axis(metric))


def log_ticks(low: float, high: float) -> list[float]:
    """Three to about eight round numbers between two positive ones, if the range allows."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 2.0, 3.0, 5.0, 7.0)):
        found = [float(f"{step}e{power}") for power in range(first, last + 1) for step in steps]
        inside = [tick for tick in found if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if len(inside) >= 3:
            return inside[:: math.ceil(len(inside) / 8)]
    return linear_ticks(low, high)


def linear_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers between two numbers."""
    low, high = clipped(low), clipped(high)
    if high - low <= max(NARROWEST, 1e-12 * max(abs(low), abs(high))):
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / count))
    step = next(
        power * factor for factor in (1, 2, 5, 10) if (high - low) / (power * factor) <= count
    )
    first = math.ceil(low / step - 1e-9)
    found = [
        float(f"{index * step:.10g}") for index in range(first, math.floor(high / step + 1e-9) + 1)
    ]
    return found or [low, high]
