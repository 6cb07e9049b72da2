"""The suggester and the stopper of a sweep: named in its spec, or the user's own classes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from automl.core import SweepSpec
from automl.core.plugin_choice import PluginChoice, choose
from automl.dispatch.base import Dispatcher
from automl.stopping import STOPPERS
from automl.stopping.base import Stopper
from automl.suggesters import SUGGESTERS
from automl.suggesters.base import SearchContext, Suggester
from automl.suggesters.domain import Domain
from automl.suggesters.knowledge import learned
from automl.suggesters.proposer import Proposer, make_suggester
from automl.suggesters.queue import BackgroundSuggestionQueue, SuggestionQueue
from automl.suggesters.user_prior import USUAL

from .earlier import sweeps_of

SuggesterLike = str | Mapping[str, Any] | type[Suggester] | Suggester
StopperLike = str | Mapping[str, Any] | type[Stopper] | Stopper


@dataclass(frozen=True)
class Plugins:
    """The plugins that a sweep has chosen. An object of the user serves one sweep."""

    suggester: PluginChoice[Suggester]
    stopper: PluginChoice[Stopper]

    @classmethod
    def choose(cls, suggester: SuggesterLike, stopper: StopperLike) -> "Plugins":
        """What a user names in Python; raises UsageError if it cannot be understood."""
        return cls(
            choose(SUGGESTERS, suggester, Suggester),
            choose(STOPPERS, stopper, Stopper),
        )

    @classmethod
    def of(cls, spec: SweepSpec) -> "Plugins":
        """Those that a spec names."""
        return cls(
            choose(SUGGESTERS, {"name": spec.suggester, **spec.suggester_options}),
            choose(STOPPERS, {"name": spec.stopper, **spec.stopper_options}),
        )

    def settings(self) -> dict[str, Any]:
        """The arguments of `SweepSpec`."""
        return {
            "suggester": self.suggester.name,
            "suggester_options": self.suggester.options,
            "stopper": self.stopper.name,
            "stopper_options": self.stopper.options,
        }

    def make_suggester(self, spec: SweepSpec, name: str, domain: Domain) -> Suggester:
        """The suggester of the sweep or, if `name` is another one's, that one (the fallback)."""
        choice = self.suggester if name == self.suggester.name else name
        context = _context(spec, domain)
        return make_suggester(choice, spec.goals, spec.constraints, context, seed=spec.seed)

    def make_queue(
        self, spec: SweepSpec, kind: type[Dispatcher], note: Callable[[str], None]
    ) -> SuggestionQueue:
        """The queue of suggestions for a dispatcher of this kind.

        Args:
            note: called with a message when another suggester had to propose.
        """
        proposer = Proposer(
            partial(self.make_suggester, spec),
            spec.suggester,
            Domain.of(spec),
            gains=spec.budget.gain is not None,
            prospects=spec.budget.until is not None,
            replicates=spec.replicates,
        )
        queue = BackgroundSuggestionQueue if kind.suggests_ahead else SuggestionQueue
        return queue(proposer, note=note)

    def make_stopper(self, spec: SweepSpec, *, can_pause: bool) -> Stopper:
        """The stopper of the sweep; raises UsageError if an option is out of its range."""
        arguments: dict[str, Any] = {
            "seed": spec.seed,
            "space": spec.known_space,
            "max_steps": spec.max_steps,
            "can_pause": can_pause,
        }
        proposes = self.stopper.kind(STOPPERS).proposes
        if proposes and self.suggester.kind(SUGGESTERS).guides_stopper:
            arguments["context"] = _context(spec, Domain.of(spec))
        return self.stopper.make(STOPPERS, spec.goals, spec.constraints, **arguments)


def _context(spec: SweepSpec, domain: Domain) -> SearchContext:
    return SearchContext(
        domain,
        spec.prior,
        spec.budget,
        earlier=sweeps_of(spec),
        knowledge=learned() if USUAL in spec.learns else {},
    )
