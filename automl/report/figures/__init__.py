"""The panels of the report, one per file, in their order on the page."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from automl.core import Snapshot
from automl.errors import UsageError
from automl.report.effects import Insight, insights_of
from automl.report.plotting import Panel
from automl.report.record import Record

from . import (
    calibration,
    contours,
    curves,
    dependence,
    feasibility,
    importance,
    memory,
    parallel,
    pareto,
    progress,
    timeline,
)

TRIAL_PANELS: Mapping[str, Callable[[Record], Panel]] = {
    "progress": progress.panel,
    "parallel": parallel.panel,
    "pareto": pareto.panel,
    "curves": curves.panel,
    "feasibility": feasibility.panel,
    "memory": memory.panel,
    "timeline": timeline.panel,
}
MODEL_PANELS: Mapping[str, Callable[[Record, Sequence[Insight]], Panel]] = {
    "importance": importance.panel,
    "dependence": dependence.panel,
    "contours": contours.panel,
    "calibration": calibration.panel,
}
ORDER = (
    "progress",
    "parallel",
    "pareto",
    "curves",
    "importance",
    "dependence",
    "contours",
    "feasibility",
    "calibration",
    "memory",
    "timeline",
)


def draw(name: str, record: Record, insights: Sequence[Insight]) -> Panel:
    """The panel of that name; insights are needed for the panels of models only."""
    if name in MODEL_PANELS:
        return MODEL_PANELS[name](record, insights)
    return TRIAL_PANELS[name](record)


def figure(snapshot: Snapshot, name: str) -> Any:
    """The first figure of a panel as a `plotly.graph_objects.Figure`; see `Result.figure`."""
    if name not in ORDER:
        wrong = f"there is no figure {name!r}" if name else "a figure has a name"
        raise UsageError(f"{wrong}; the figures are {', '.join(ORDER)}")
    try:
        import plotly.graph_objects as go
    except ModuleNotFoundError as error:
        raise UsageError("figures need plotly: install automl[report]") from error
    record = Record.of(snapshot)
    panel = draw(name, record, insights_of(record) if name in MODEL_PANELS else ())
    if not panel.figures:
        raise UsageError(panel.caption)
    return go.Figure(panel.figures[0])
