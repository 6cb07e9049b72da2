"""How a sweep begins, whoever asks: its spec, trials from elsewhere, configurations to try."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from automl.control.plugins import Plugins, StopperLike, SuggesterLike
from automl.core import Command, SweepSpec, arguments, parse_constraints, parse_goals
from automl.core.environment import describe
from automl.core.keys import read_keys
from automl.core.plugin_choice import PluginChoice
from automl.core.resources import local_gpus, slot_resources
from automl.core.spec import KEYS
from automl.ledger import Ledger
from automl.suggesters.base import Suggester
from automl.suggesters.domain import Domain, updated_limits
from automl.suggesters.user_prior import check_prior
from search_spaces.plain import read_space
from search_spaces.validation import plain_params
from workers.protocol import Metric, Params

from . import import_trials
from .import_trials import Source
from .retrain import enqueue
from .transfer import transfer


@dataclass(frozen=True)
class Beginning:
    """What a sweep begins with. Of a sweep that has run, only limits and new configurations count.

    Args:
        prior: sources of finished trials, see `import_trials.read`. The budget of trials grows by
            their number.
        configurations: to train after trial 0, before anything is suggested. A parameter that is
            not named has its default.
        limits: by parameter: a value, a range `(low, high)`, or a list of choices.
        transfer: name of an earlier, similar sweep.
    """

    prior: Sequence[Source] = ()
    configurations: Sequence[Params] = ()
    limits: Mapping[str, Any] = field(default_factory=dict)
    transfer: str | None = None

    @classmethod
    def of(
        cls,
        prior: Source | Iterable[Source] | None,
        configurations: Mapping[str, Any] | Iterable[Mapping[str, Any]],
        limits: Mapping[str, Any] | None,
        transfer: str | None,
    ) -> "Beginning":
        """From the arguments of `automl.sweep`, which may be one source or configuration alone.

        Raises:
            UsageError: an argument has the wrong type.
        """
        sources = list(prior) if isinstance(prior, list | tuple) else [prior] if prior else []
        wanted = arguments.listed("enqueue", configurations, Mapping, "a configuration")
        pinned = {} if limits is None else arguments.mapping("pin", limits)
        return cls(sources, [plain_params(c) for c in wanted], pinned, transfer)


NOTHING: Final = Beginning()


def read_spec(
    space: Any,
    goals: Any,
    constraints: Any,
    suggester: SuggesterLike,
    stopper: StopperLike = "none",
    *,
    beliefs: Mapping[str, Any] | None,
    metrics: Iterable[Metric],
    local: bool = False,
    **settings: Any,
) -> tuple[SweepSpec, Plugins, str]:
    """The spec that keyword arguments describe, as a person may write them in Python.

    Args:
        space, goals, constraints, suggester, stopper, beliefs, metrics: as in `automl.sweep`.
        local: whether trials run on this machine; then a slot has a GPU of it by default.
        settings: further keys of a configuration.

    Returns:
        The spec, the plugins, and a line about the resources for a person ("" without one).

    Raises:
        UsageError: an argument is wrong.
    """
    space = read_space(space)
    plugins = Plugins.choose(suggester, stopper)
    given = read_keys(KEYS, settings)
    slot, workers = given.pop("resources", {}), given.pop("workers", None)
    num_gpus = local_gpus() if local and "gpus" not in slot else 0
    resources, note = slot_resources(slot, num_gpus, workers.max if workers else None)
    spec = SweepSpec(
        space=space,
        goals=parse_goals(goals),
        constraints=parse_constraints(constraints),
        beliefs=check_prior({} if beliefs is None else beliefs, space, plugins.suggester),
        metrics=arguments.metrics(metrics),
        resources=resources,
        **plugins.settings(),
        **given,
    )
    return spec.with_workers(workers), plugins, note


def begin(
    ledger: Any,
    spec: SweepSpec,
    beginning: Beginning = NOTHING,
    *,
    rename: bool = False,
    resume: bool = False,
    described: bool = True,
    suggester: PluginChoice[Suggester] | None = None,
    tell: Callable[[str, bool], None] = lambda text, incomplete: None,
) -> SweepSpec:
    """Create a sweep in a ledger and begin it: the one place where sweeps come from.

    Args:
        beginning: what it begins with; needs a `Ledger`.
        rename: a name that is in use gets "-2" or so; else it is refused.
        resume: if there is a sweep of that name, go on with it.
        described: whether to record the environment.
        suggester: of the sweep; None for the one that the spec names.
        tell: called with a line about each source of trials, and whether it left some out.

    Returns:
        The spec, under the name of the sweep in the ledger, with a budget for what was imported.

    Raises:
        UsageError: something does not fit the sweep. Then a new sweep is deleted again.
    """
    if resume and ledger.exists(spec.name):
        _go_on(ledger, spec, beginning)
        return _with_budget(ledger, spec, beginning)
    name = ledger.create_sweep(spec, describe() if described else {}, rename=rename)
    spec = replace(spec, name=name)
    if beginning == NOTHING:
        return spec
    try:
        for source in beginning.prior:
            found = import_trials.read(source, spec.space, spec.goals, ledger)
            import_trials.add(ledger, name, found.trials)
            named = isinstance(source, str | os.PathLike)
            tell(f"{source if named else type(source).__name__}: {found}", bool(found.left_out))
        if beginning.transfer is not None:
            spec = transfer(ledger, name, beginning.transfer, suggester)
            around = ", ".join(spec.beliefs)
            text = f"starts with the best trials of {beginning.transfer}, with priors around "
            tell(f"{text}their values of: {around}", False)
        _go_on(ledger, spec, beginning)
        spec = _with_budget(ledger, spec, beginning)
        ledger.replace_spec(name, spec)
    except Exception:
        ledger.delete(name)
        raise
    return spec


def _go_on(ledger: Ledger, spec: SweepSpec, beginning: Beginning) -> None:
    """Enqueue the configurations that the sweep does not have, and set the limits."""
    space = spec.space
    limits = {}
    if beginning.limits:
        from automl.config.limits import limit_of  # its package takes 0.1 s to import

        given = beginning.limits.items()
        limits = {name: limit_of(space, name, value) for name, value in given}
    Domain(space, limits)  # raises if no configuration is left
    for params in beginning.configurations:
        unknown = {n: v for n, v in params.items() if n not in space.parameters}
        space.check({**space.complete(params), **unknown})
    trials = ledger.trials(spec.name) if beginning.configurations else []
    seen = {space.key(t.params) for t in trials if space.legal(t.params)}
    wanted = {space.key(c): c for c in map(space.complete, beginning.configurations)}
    new = [params for key, params in wanted.items() if key not in seen]
    default = space.default()
    if new and not trials and default is not None:
        enqueue(ledger, spec.name, [default], "default")
        new = [params for params in new if space.key(params) != space.key(default)]
    if new:
        enqueue(ledger, spec.name, new)
    sent = (c.content for c in ledger.commands(spec.name) if c.kind == "limits")
    before = updated_limits(sent)
    if any(before.get(name) != limit for name, limit in limits.items()):
        content = {name: limit.to_dict() for name, limit in limits.items()}
        ledger.send(spec.name, Command("limits", content))


def _with_budget(ledger: Ledger, spec: SweepSpec, beginning: Beginning) -> SweepSpec:
    trials = spec.budget.trials
    if not beginning.prior or trials is None:
        return spec
    added = sum(t.source == import_trials.SOURCE for t in ledger.trials(spec.name))
    return replace(spec, budget=replace(spec.budget, trials=trials + added))
