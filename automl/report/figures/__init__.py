"""The panels of the report and the dashboard, one per file, in their order on the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from automl.core.snapshot import Snapshot
from automl.errors import UsageError
from automl.report.effects import Insight, insights_of
from automl.report.plotting import Panel
from automl.report.record import Record
from search_spaces.plugins import nearest

from . import (
    calibration,
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

Draw = Callable[[Record, Sequence[Insight]], Panel]

BY_NAME: Mapping[str, Draw] = {
    "progress": progress.panel,
    "parallel": parallel.panel,
    "pareto": pareto.panel,
    "curves": curves.panel,
    "importance": importance.panel,
    "dependence": dependence.panel,
    "feasibility": feasibility.panel,
    "calibration": calibration.panel,
    "memory": memory.panel,
    "timeline": timeline.panel,
}
PANELS: Sequence[Draw] = tuple(BY_NAME.values())
NEED_MODELS = frozenset({"importance", "dependence", "calibration"})


def figure(snapshot: Snapshot, name: str) -> Any:
    """The first figure of a panel as a `plotly.graph_objects.Figure`; see `Result.figure`."""
    if name not in BY_NAME:
        raise UsageError(f"there is no figure {name!r}: {nearest(name, list(BY_NAME))}")
    try:
        import plotly.graph_objects as go
    except ModuleNotFoundError as error:
        raise UsageError("figures need plotly: install automl[report]") from error
    record = Record.of(snapshot)
    panel = BY_NAME[name](record, insights_of(record) if name in NEED_MODELS else ())
    if not panel.figures:
        raise UsageError(panel.caption)
    return go.Figure(panel.figures[0])
