"""Where each sweep comes from: its spec from keyword arguments, and its place in a ledger."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from automl.core import SweepSpec, arguments, parse_constraints, parse_goals
from automl.core.environment import describe
from automl.core.keys import read_keys
from automl.core.resources import local_gpus, slot_resources
from automl.core.spec import KEYS
from automl.errors import UsageError
from automl.suggesters.user_prior import check_prior
from search_spaces import Space
from search_spaces.plain import ambiguous, read_space
from workers.protocol import Metric

from .plugins import Plugins, StopperLike, SuggesterLike

if TYPE_CHECKING:
    from automl.ledger import Ledger


def read_spec(
    space: Any,
    goals: Any,
    constraints: Any,
    suggester: SuggesterLike,
    stopper: StopperLike = "none",
    *,
    prior: Mapping[str, Any] | None,
    learns: tuple[str, ...] = (),
    metrics: Iterable[Metric],
    local: bool = False,
    **settings: Any,
) -> tuple[SweepSpec, Plugins, list[str]]:
    """The spec that keyword arguments describe, as a person may write them in Python.

    Args:
        space: None if the objective declares it.
        goals, constraints, suggester, stopper, metrics: as in `automl.sweep`.
        prior: by parameter; learns: its words, see `split_prior`.
        local: whether trials run on this machine; then a slot has a GPU of it by default.
        settings: further keys of a configuration.

    Returns:
        The spec, the plugins, and lines for a person: about the resources, and about ranges that
        may mean something else.

    Raises:
        UsageError: an argument is wrong.
    """
    asked: dict[str, str] | None = {} if space is None else None  # the objective declares it
    notes, space = ambiguous(space), Space() if space is None else read_space(space)
    plugins = Plugins.choose(suggester, stopper)
    given = read_keys(KEYS, settings)
    slot, workers = given.pop("resources", {}), given.pop("workers", None)
    num_gpus = local_gpus() if local and "gpus" not in slot else 0
    resources, note = slot_resources(slot, num_gpus, workers.max if workers else None)
    spec = SweepSpec(
        space=space,
        goals=parse_goals(goals),
        constraints=parse_constraints(constraints),
        learns=learns,
        prior=check_prior({} if prior is None else prior, space, plugins.suggester),
        metrics=arguments.metrics(metrics),
        resources=resources,
        asked=asked,
        **plugins.settings(),
        **given,
    )
    check_sweep(spec)
    return spec.with_workers(workers), plugins, [note, *notes] if note else notes


def check_sweep(spec: SweepSpec) -> None:
    """Check what holds for every sweep, whoever begins it.

    Raises:
        UsageError: no configuration satisfies the constraints of the space, or a constraint is on a
            parameter.
    """
    spec.space.sample(np.random.default_rng(0))
    for one in spec.constraints:
        if one.metric in spec.space.parameters and one.declared is None:
            raise UsageError(
                f"the constraint {str(one)!r} is on a parameter, and those of a sweep are on "
                "metrics: narrow the range of the parameter, or put the constraint into the space: "
                f"Space(..., constraints=[{str(one)!r}]). If a metric has the same name, declare "
                f"it: metrics=[automl.Metric({one.metric!r})]"
            )


def create(
    ledger: "Ledger",
    spec: SweepSpec,
    *,
    rename: bool = False,
    described: bool = True,
    facts: Mapping[str, Any] | None = None,
) -> SweepSpec:
    """Create a sweep: every way to begin one comes through here.

    Args:
        rename: a name that is in use gets "-2" or so; else it is refused.
        described: whether to record the environment.
        facts: plain data to record beside it.

    Returns:
        The spec, under the name of the sweep in the ledger.
    """
    check_sweep(spec)
    environment = {**(describe() if described else {}), **(facts or {})}
    return replace(spec, name=ledger.create_sweep(spec, environment, rename=rename))
