"""What a sweep begins with: trials from elsewhere, configurations to try, limits."""

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from automl.core import Command, SweepSpec, arguments
from automl.core.environment import describe
from automl.core.plugin_choice import PluginChoice
from automl.ledger import Ledger
from automl.suggesters.base import Suggester
from automl.suggesters.domain import Domain, updated_limits
from search_spaces.validation import plain_params
from workers.protocol import Params

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

    def create(
        self,
        ledger: Ledger,
        spec: SweepSpec,
        suggester: PluginChoice[Suggester],
        *,
        rename: bool,
        resume: bool,
    ) -> SweepSpec:
        """Create the sweep, or find it if it is to be resumed, and begin it.

        Args:
            suggester: of the sweep.

        Returns:
            The spec, under the name of the sweep in the ledger.

        Raises:
            UsageError: something does not fit the sweep. Then a new sweep is deleted again.
        """
        if resume and ledger.exists(spec.name):
            self._go_on(ledger, spec)
            return self._with_budget(ledger, spec)
        spec = replace(spec, name=ledger.create_sweep(spec, describe(), rename=rename))
        try:
            for source in self.prior:
                found = import_trials.read(source, spec.space, spec.goals, ledger)
                import_trials.add(ledger, spec.name, found.trials)
                if found.left_out:
                    warnings.warn(f"prior {_name(source)}: {found}", stacklevel=3)
            if self.transfer is not None:
                spec = transfer(ledger, spec.name, self.transfer, suggester)
            self._go_on(ledger, spec)
        except Exception:
            ledger.delete(spec.name)
            raise
        return self._with_budget(ledger, spec)

    def _go_on(self, ledger: Ledger, spec: SweepSpec) -> None:
        """Enqueue the configurations that the sweep does not have, and set the limits."""
        space = spec.space
        limits = {}
        if self.limits:
            from automl.config.limits import limit_of  # its package takes 0.1 s to import

            limits = {name: limit_of(space, name, value) for name, value in self.limits.items()}
        Domain(space, limits)  # raises if no configuration is left
        for params in self.configurations:
            unknown = {n: v for n, v in params.items() if n not in space.parameters}
            space.check({**space.complete(params), **unknown})
        trials = ledger.trials(spec.name) if self.configurations else []
        seen = {space.key(t.params) for t in trials if space.legal(t.params)}
        wanted = {space.key(c): c for c in map(space.complete, self.configurations)}
        new = [params for key, params in wanted.items() if key not in seen]
        default = space.default()
        if new and not trials and default is not None:
            enqueue(ledger, spec.name, [default], "default")
            new = [params for params in new if space.key(params) != space.key(default)]
        if new:
            enqueue(ledger, spec.name, new)
        before = updated_limits([ledger.state(spec.name).limits])
        if any(before.get(name) != limit for name, limit in limits.items()):
            content = {name: limit.to_dict() for name, limit in limits.items()}
            ledger.send(spec.name, Command("limits", content))

    def _with_budget(self, ledger: Ledger, spec: SweepSpec) -> SweepSpec:
        trials = spec.budget.trials
        if not self.prior or trials is None:
            return spec
        added = sum(t.source == import_trials.SOURCE for t in ledger.trials(spec.name))
        return replace(spec, budget=replace(spec.budget, trials=trials + added))


def _name(source: Source) -> str:
    return str(source) if isinstance(source, str | os.PathLike) else type(source).__name__
