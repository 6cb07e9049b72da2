"""Converts a sweep to an Ax experiment, for analyses and further suggestions by Ax.

client = experiment(automl.load("nmt"))
client.compute_analyses()
client.get_best_parameterization()
"""

from typing import Any, Protocol

from automl.core import Snapshot, Trial, TrialState, ranking
from automl.errors import UsageError
from search_spaces import Choice, Int, Parameter, Space
from workers.protocol import Params


class Swept(Protocol):
    """The result of `automl.load` or `automl.sweep`."""

    @property
    def snapshot(self) -> Snapshot:
        """The sweep as it was read."""


def experiment(sweep: Swept | Snapshot) -> Any:
    """An `ax.Client` with every finished and running trial.

    Conditional parameters are flattened: an inactive one gets its default or the middle of its
    range. Trials that failed or have no value for a goal are marked as failed.

    Raises:
        UsageError: the space of the sweep is not known, or has nothing to tune.
    """
    from ax import Client

    snapshot = sweep if isinstance(sweep, Snapshot) else sweep.snapshot
    if snapshot.spec is None:
        raise UsageError("the space of this sweep is not known: load the sweep with automl.load")
    space = snapshot.spec.known_space
    parameters = [_config(p) for p in space.parameters.values() if p.size != 1]
    if not parameters:
        raise UsageError("this sweep has no parameter with two values: Ax needs at least one")
    client = Client()
    client.configure_experiment(parameters=parameters, name=snapshot.sweep)
    goals = ", ".join(
        goal.metric if goal.maximize else f"-{goal.metric}" for goal in snapshot.goals
    )
    client.configure_optimization(
        objective=goals, outcome_constraints=[str(c) for c in snapshot.constraints]
    )
    # Ax needs a strategy for analyses and suggestions. The known trials replace its Sobol trials.
    client.configure_generation_strategy(initialization_budget=0, initialize_with_center=False)
    for trial in snapshot.trials:
        if trial.state.finished or trial.state is TrialState.RUNNING:
            _attach(client, snapshot, space, trial)
    return client


def _attach(client: Any, snapshot: Snapshot, space: Space, trial: Trial) -> None:
    index = client.attach_trial(_flattened(space, trial.params), arm_name=f"trial_{trial.number}")
    if trial.state is TrialState.RUNNING:
        return
    values = {g.metric: ranking.value(trial, g) for g in snapshot.goals}
    data: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    data |= {
        c.metric: trial.metrics[c.metric] for c in snapshot.constraints if c.metric in trial.metrics
    }
    if trial.state is TrialState.FAILED or len(data) < len(snapshot.goals):
        client.mark_trial_failed(index, failed_reason=trial.message or trial.failure or "no value")
    else:
        client.complete_trial(index, raw_data=data)


def _flattened(space: Space, params: Params) -> dict[str, Any]:
    return {
        name: params.get(name, parameter.middle())
        for name, parameter in space.parameters.items()
        if parameter.size != 1
    }


def _config(parameter: Parameter) -> Any:
    from ax import ChoiceParameterConfig, RangeParameterConfig

    if isinstance(parameter, Choice):
        kinds = {type(choice) for choice in parameter.choices}
        kind = (
            {bool: "bool", int: "int", float: "float"}.get(kinds.pop(), "str")
            if len(kinds) == 1
            else "str"
        )
        ordered = parameter.ordered or kind in ("int", "float")
        return ChoiceParameterConfig(
            parameter.name, list(parameter.choices), kind, is_ordered=ordered
        )
    kind = "int" if isinstance(parameter, Int) else "float"
    scaling = "log" if parameter.log else "linear"  # type: ignore[attr-defined]
    bounds = (parameter.low, parameter.high)  # type: ignore[attr-defined]
    return RangeParameterConfig(parameter.name, bounds, kind, scaling=scaling)
