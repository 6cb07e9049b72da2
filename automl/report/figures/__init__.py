"""The figures of the report and of the live page, one a file, in the order in which they are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from automl.report.draw import Panel
from automl.report.effects import Insight
from automl.report.record import Record

from . import calibration, curves, dependence, feasibility, importance, parallel, pareto, progress, timeline

Draw = Callable[[Record, Sequence[Insight]], Panel]

PANELS: Sequence[Draw] = (
    progress.panel,
    parallel.panel,
    pareto.panel,
    curves.panel,
    importance.panel,
    dependence.panel,
    feasibility.panel,
    calibration.panel,
    timeline.panel,
)
