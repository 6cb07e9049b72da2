"""How a sweep begins, whoever asks: its spec, trials from elsewhere, configurations to try."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from automl.control.beginning import create, with_earlier
from automl.control.journal import writing
from automl.core import SpecChanged, SweepSpec, arguments
from automl.core.keys import PluginChoice
from automl.errors import UsageError
from automl.ledger import Ledger
from automl.suggesters.base import Suggester
from workers.protocol import Params

from . import import_trials
from .import_trials import Source


@dataclass(frozen=True)
class Beginning:
    """What a sweep begins with. Of a sweep that has run, only new configurations count.

    Args:
        prior: sources of finished trials, see `import_trials.read`. The budget of trials grows by
            their number.
        configurations: to train after trial 0, before anything is suggested. A parameter that is
            not named has its default.
    """

    prior: Sequence[Source] = ()
    configurations: Sequence[Params] = ()

    @classmethod
    def of(
        cls,
        prior: Sequence[Source],
        configurations: Mapping[str, Any] | Iterable[Mapping[str, Any]],
    ) -> "Beginning":
        """From the sources of trials, and one configuration or several.

        Raises:
            UsageError: an argument has the wrong type.
        """
        wanted = arguments.listed("enqueue", configurations, Mapping, "a configuration")
        return cls(prior, wanted)


def begin(
    ledger: Ledger,
    spec: SweepSpec,
    beginning: Beginning,
    *,
    rename: bool = False,
    resume: bool = False,
    suggester: PluginChoice[Suggester] | None = None,
    tell: Callable[[str, bool], None] = lambda text, incomplete: None,
) -> SweepSpec:
    """Create a sweep in a ledger and begin it, whoever asks for it.

    Args:
        beginning: what it begins with.
        rename: a name that is in use gets "-2" or so; else it is refused.
        resume: if there is a sweep of that name, go on with it.
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
    imported = [  # before there is a sweep of this name, which is no source of its own
        import_trials.read(source, spec.space, spec.goals, ledger, spec.constraints)
        for source in beginning.prior
    ]
    try:
        spec = create(ledger, with_earlier(ledger, spec, suggester), rename=rename)
    except UsageError:
        if not (resume and ledger.exists(spec.name)):
            raise
        return begin(ledger, spec, beginning, resume=True)  # another process was faster
    if spec.earlier:
        tell(f"learns from {spec.learned_from}", False)
    name = spec.name
    try:
        for source, found in zip(beginning.prior, imported, strict=True):
            import_trials.add(ledger, name, found.trials)
            named = isinstance(source, str | os.PathLike)
            tell(f"{source if named else type(source).__name__}: {found}", bool(found.left_out))
        _go_on(ledger, spec, beginning)
        if beginning.prior:
            spec = _with_budget(ledger, spec, beginning)
            ledger.append(name, SpecChanged(spec.to_dict()))
    except Exception:
        ledger.delete(name)
        raise
    return spec


def _go_on(ledger: Ledger, spec: SweepSpec, beginning: Beginning) -> None:
    """Enqueue the configurations that the sweep does not have."""
    space = spec.space
    configurations = [space.accept(params) for params in beginning.configurations]
    trials = ledger.trials(spec.name) if configurations else []
    seen = {space.key(t.params) for t in trials if space.legal(t.params)}
    wanted = {space.key(params): params for params in configurations}
    new = [params for key, params in wanted.items() if key not in seen]
    default = space.default()
    begun = sum(trial.source != import_trials.SOURCE for trial in trials)
    count = len(new) + begun + (default is not None and not trials)
    if new and spec.budget.trials is not None and count > spec.budget.trials:
        raise UsageError(
            f"the budget is {spec.budget.trials} trials, and with the {len(new)} enqueued ones "
            f"there are {count} (trial 0 counts): raise it, or enqueue fewer"
        )
    if new and not trials and default is not None:
        enqueue(ledger, spec.name, [default], "default")
        new = [params for params in new if space.key(params) != space.key(default)]
    if new:
        enqueue(ledger, spec.name, new)


def _with_budget(ledger: Ledger, spec: SweepSpec, beginning: Beginning) -> SweepSpec:
    trials = spec.budget.trials
    if not beginning.prior or trials is None:
        return spec
    added = sum(t.source == import_trials.SOURCE for t in ledger.trials(spec.name))
    return replace(spec, budget=replace(spec.budget, trials=trials + added))


def enqueue(
    ledger: Ledger, sweep: str, configurations: Sequence[Params], source: str = "enqueued"
) -> None:
    """Add trials to a sweep that is not running. It trains them before any other.

    Raises:
        SpaceError: a configuration is not legal in the sweep's space. Then none is added.
        StoreError: a controller holds the sweep.
    """
    space = ledger.spec(sweep).space
    accepted = [space.accept(params) for params in configurations]
    with writing(ledger, sweep) as writer:
        for params in accepted:
            writer.propose(params, source)
