"""A sweep as a study of Optuna, for its figures and its dashboard.

    found = study("nmt")
    optuna.visualization.plot_param_importances(found)

With optuna-dashboard: `study("nmt", storage=storage)` and `optuna_dashboard.run_server(storage)`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

from automl.core import Snapshot, Trial, TrialState, ranking
from automl.errors import UsageError, needs
from automl.ledger import Ledger
from automl.report.record import Record
from search_spaces import Choice, Int, Parameter

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.storages import BaseStorage

STATES: Final[Mapping[TrialState, str]] = {
    TrialState.COMPLETED: "COMPLETE",
    TrialState.STOPPED: "PRUNED",
    TrialState.FAILED: "FAIL",
    TrialState.RUNNING: "RUNNING",
}
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


def study(
    sweep: str, store: str | PathLike[str] = ".automl", *, storage: BaseStorage | None = None
) -> Study:
    """A stored sweep as it is now, as a study of the same name.

    A completed trial is COMPLETE, a stopped one PRUNED, a failed one FAIL, a waiting or paused one
    WAITING. Its value is its best report that satisfies the constraints or, if there is none, its
    best report. Its `constraints` are positive if a constraint is violated.

    Args:
        storage: of Optuna, to write to; None for one in memory.

    Raises:
        UsageError: there is no such store or sweep.
    """
    with closing(Ledger.open(store, readonly=True)) as ledger:
        return study_of(ledger.snapshot(sweep), storage)


def study_of(snapshot: Snapshot, storage: BaseStorage | None = None) -> Study:
    """A sweep as a study."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    directions = ["maximize" if goal.maximize else "minimize" for goal in snapshot.goals]
    found = optuna.create_study(study_name=snapshot.sweep, directions=directions, storage=storage)
    space = Record.of(snapshot).space
    distributions = {name: distribution(one) for name, one in space.parameters.items()}
    found.add_trials([_frozen(snapshot, trial, distributions) for trial in snapshot.trials])
    return found


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

    draw, found = getattr(optuna.visualization, FIGURES[name]), study_of(snapshot)
    metric = snapshot.goals[0].metric
    first = {"target": lambda trial: trial.values[0], "target_name": metric}
    return draw(found, **({} if name in ("pareto", "curves", "timeline") else first))


def distribution(parameter: Parameter) -> BaseDistribution:
    """A parameter as Optuna's distribution."""
    from optuna import distributions

    if isinstance(parameter, Choice):
        return distributions.CategoricalDistribution([*map(_plain, parameter.choices)])
    one: Any = parameter  # a Float or an Int
    whole = isinstance(parameter, Int)
    kind = distributions.IntDistribution if whole else distributions.FloatDistribution
    return kind(one.low, one.high, log=one.log, step=one.step)


def _plain(value: Any) -> Any:
    """A value that each storage of Optuna keeps: a list is a text, which reads as the list."""
    return str(value) if isinstance(value, tuple) else value


def _frozen(snapshot: Snapshot, trial: Trial, distributions: Mapping[str, BaseDistribution]) -> Any:
    from optuna.trial import FrozenTrial
    from optuna.trial import TrialState as OptunaState

    limits, metric = snapshot.constraints, snapshot.goals[0].metric
    values = [ranking.value(trial, goal, limits) for goal in snapshot.goals]
    if None in values:
        values = [ranking.value(trial, goal) for goal in snapshot.goals]
    state = OptunaState[STATES.get(trial.state, "WAITING")]
    if state is OptunaState.COMPLETE and None in values:
        state = OptunaState.FAIL
    valued = None not in values and state in (OptunaState.COMPLETE, OptunaState.PRUNED)
    params = {n: _plain(value) for n, value in trial.params.items() if n in distributions}
    ended = datetime.fromtimestamp(trial.ended or 0.0)
    excesses = [one.excess(trial.metrics.get(one.metric, math.inf)) for one in limits]
    finite = {name: value for name, value in trial.metrics.items() if math.isfinite(value)}
    facts = {"failure": trial.failure, "message": trial.message, "source": trial.source}
    points = trial.reports
    return FrozenTrial(
        number=trial.number,
        state=state,
        value=None,
        values=values if valued else None,
        datetime_start=datetime.fromtimestamp(trial.started or 0.0),
        datetime_complete=ended if state.is_finished() else None,
        params=params,
        distributions={name: distributions[name] for name in params},
        user_attrs={**finite, **{name: value for name, value in facts.items() if value}},
        system_attrs={"constraints": excesses} if limits else {},
        intermediate_values={p.step: p.metrics[metric] for p in points if metric in p.metrics},
        trial_id=trial.number,
    )
