"""The figures of a sweep for notebooks: those of Optuna, of the sweep as an Optuna study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from automl.core import Snapshot
from automl.errors import UsageError, needs

from .record import Record

FIGURES: Final[Mapping[str, str]] = {  # name, and that of the function in `optuna.visualization`
    "progress": "plot_optimization_history",
    "parallel": "plot_parallel_coordinate",
    "pareto": "plot_pareto_front",
    "curves": "plot_intermediate_values",
    "importance": "plot_param_importances",
    "dependence": "plot_slice",
    "contours": "plot_contour",
    "timeline": "plot_timeline",
}


def figure(snapshot: Snapshot, name: str) -> Any:
    """A figure as a `plotly.graph_objects.Figure`; see `Result.figure`."""
    if name not in FIGURES:
        wrong = f"there is no figure {name!r}" if name else "a figure has a name"
        raise UsageError(f"{wrong}; the figures are {', '.join(FIGURES)}")
    try:
        import plotly  # noqa: F401
    except ModuleNotFoundError as error:
        raise UsageError(needs("a figure", "plotly", "report")) from error
    import optuna

    from automl.integrations.optuna_storage import frozen_trials

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    goals = snapshot.goals
    study = optuna.create_study(
        directions=["maximize" if g.maximize else "minimize" for g in goals]
    )
    study.add_trials(frozen_trials(snapshot, Record.of(snapshot).space))
    first = {"target": lambda trial: trial.values[0], "target_name": goals[0].metric}
    targeted = name not in ("pareto", "curves", "timeline")
    try:
        return getattr(optuna.visualization, FIGURES[name])(study, **(first if targeted else {}))
    except (ValueError, RuntimeError) as error:
        raise UsageError(f"the figure {name} cannot be drawn: {error}") from error
