"""The panels of the report, one per file, in their order on the page."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from automl.core import Snapshot
from automl.errors import UsageError, needs
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

# In their order on the page, and whether a panel shows surrogates.
PANELS: Mapping[str, tuple[Callable[..., Panel], bool]] = {
    "progress": (progress.panel, False),
    "parallel": (parallel.panel, False),
    "pareto": (pareto.panel, False),
    "curves": (curves.panel, False),
    "importance": (importance.panel, True),
    "dependence": (dependence.panel, True),
    "contours": (contours.panel, True),
    "feasibility": (feasibility.panel, False),
    "calibration": (calibration.panel, True),
    "memory": (memory.panel, False),
    "timeline": (timeline.panel, False),
}
ORDER = tuple(PANELS)


def draw(name: str, record: Record, insights: Sequence[Insight]) -> Panel:
    """The panel of that name; insights are needed for the panels of surrogates only."""
    panel, is_modelled = PANELS[name]
    return panel(record, insights) if is_modelled else panel(record)


def figure(snapshot: Snapshot, name: str) -> Any:
    """The first figure of a panel as a `plotly.graph_objects.Figure`; see `Result.figure`."""
    if name not in ORDER:
        wrong = f"there is no figure {name!r}" if name else "a figure has a name"
        raise UsageError(f"{wrong}; the figures are {', '.join(ORDER)}")
    try:
        import plotly.graph_objects as go
    except ModuleNotFoundError as error:
        raise UsageError(needs("a figure", "plotly", "report")) from error
    record = Record.of(snapshot)
    panel = draw(name, record, insights_of(record) if PANELS[name][1] else ())
    if not panel.figures:
        raise UsageError(panel.caption)
    return go.Figure(panel.figures[0])
