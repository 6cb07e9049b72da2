"""Where a sweep comes from, and how its space changes: by a person, or as its trials ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from automl.core import SweepSpec, Trial, TrialState, arguments, parse_constraints, parse_goals
from automl.core.environment import describe
from automl.core.keys import read_keys
from automl.core.resources import local_gpus, slot_resources
from automl.core.spec import KEYS
from automl.errors import SpaceError, UsageError
from automl.suggesters.user_prior import check_prior
from search_spaces import Space
from search_spaces.change import changes, joined
from search_spaces.learned import Asks, explains, is_same, learned, parameter_of, same_kind
from search_spaces.plain import ambiguous, read_space
from workers.protocol import Asked, Metric

from .journal import Journal
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
        metrics=tuple(arguments.listed("metrics", metrics, Metric, "an automl.Metric")),
        resources=resources,
        workers=workers,
        asked=asked,
        **plugins.settings(),
        **given,
    )
    check_sweep(spec)
    return spec, plugins, [note, *notes] if note else notes


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
    ledger: Ledger,
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


def with_known_space(writer: Journal, wanted: SweepSpec) -> SweepSpec:
    """Go on with another specification, which then knows the space of the earlier trials.

    If the space has changed, a note of kind "space" says how. The trials stay as they are.

    Args:
        writer: of the sweep.
        wanted: with the space of the trials to come.

    Raises:
        UsageError: a parameter is missing or has another type, a new one has no default, or a goal
            has another metric or direction.
    """
    stored = writer.spec
    if _directions(stored) != _directions(wanted):
        known, given = (", ".join(map(str, spec.goals)) for spec in (stored, wanted))
        raise UsageError(
            f"sweep {stored.name!r} has the goal {known!r}, got {given!r}: go on with that, "
            "or begin a sweep of another name"
        )
    if wanted.asked is not None:  # what its trials have asked for so far
        wanted = replace(wanted, space=stored.space, asked=stored.asked)
    spec = replace(
        wanted,
        explored=stored.explored,
        learns=stored.learns,
        earlier=stored.earlier,
    )
    if stored.space != wanted.space:
        if writer.trials:
            try:
                tried = [trial.params for trial in writer.trials]
                spec = replace(spec, explored=joined(stored.known_space, wanted.space, tried))
            except SpaceError as error:
                raise UsageError(
                    f"sweep {spec.name!r} has run with another space: {error}"
                ) from error
        check_sweep(spec)
        writer.note("space", "; ".join(changes(stored.space, wanted.space)))
    writer.specify(spec)
    return spec


def _directions(spec: SweepSpec) -> list[tuple[str, bool]]:
    return [(goal.metric, goal.maximize) for goal in spec.goals]


class Growth:
    """Keeps the space of a sweep as its trials have asked for it.

    The space is a function of what the log says that trials asked for; each change of it is in the
    log before a proposal that knows it.

    Args:
        writer: of the sweep.
        grown: called with the new specification, to propose from it.
    """

    def __init__(self, writer: Journal, grown: Callable[[SweepSpec], None]) -> None:
        self._writer = writer
        self._grown = grown
        self._told: list[str] = []

    def conflict(self, event: Asked) -> str:
        """Why a range cannot belong to the parameter of that name; "" if it can."""
        spec, asked = self._writer.spec, event.parameter
        known = spec.space.parameters.get(asked["name"])
        if known is None or is_same(known, asked) or same_kind(known, parameter_of(asked)):
            return ""
        earlier = f"{(spec.asked or {}).get(known.name)} has asked for {known!r}"
        wanted = parameter_of(asked)
        return f"{event.line} asks for {wanted!r}, and {earlier}: give one of them another name"

    def follow(self, trial: Trial | None) -> None:
        """Learn from what a trial has asked for, and from what it has not."""
        spec = self._writer.spec
        if spec.asked is None or trial is None or explains(spec.space, _asks(trial)):
            return
        trials = self._writer.trials
        space, moved = learned(map(_asks, trials))
        if new := [name for name in moved if name not in self._told]:
            self._told += new
            text = "its range depends on other values; its position in it is searched"
            self._writer.note("space", f"{', '.join(new)}: {text}")
        if space != spec.space:
            lines: dict[str, str] = {}
            for one in trials:
                lines = {**{n: asked["line"] for n, asked in (one.asked or {}).items()}, **lines}
            changed = replace(spec, space=space, asked=lines)
            self._writer.specify(changed)
            self._grown(changed)


def _asks(trial: Trial) -> Asks:
    return Asks(trial.params, trial.asked or {}, trial.state is TrialState.COMPLETED)
