"""The suggester and the stopper of a sweep, and the earlier sweeps that it learns from.

Those are recorded in the spec when the sweep begins, so neither a resumed sweep nor an equal seed
depends on what the store gets or loses later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from automl.core import Snapshot, SweepSpec
from automl.core.keys import PluginChoice, choose
from automl.core.ranking import value
from automl.dispatch.base import Dispatcher
from automl.errors import UsageError
from automl.stopping import STOPPERS
from automl.stopping.base import Stopper
from automl.suggesters import SUGGESTERS
from automl.suggesters.base import EarlierSweep, SearchContext, Suggester
from automl.suggesters.domain import Domain
from automl.suggesters.proposer import Proposer, make_suggester
from automl.suggesters.queue import BackgroundSuggestionQueue, SuggestionQueue
from automl.suggesters.user_prior import LIKE
from search_spaces import Space

if TYPE_CHECKING:
    from automl.ledger import Ledger


MAX_RECORDED: Final = 100  # trials of a sweep


def with_earlier(
    ledger: Ledger, spec: SweepSpec, suggester: PluginChoice[Suggester] | None = None
) -> SweepSpec:
    """The spec of a new sweep with the trials of the earlier sweeps that its prior names.

    Args:
        suggester: of the sweep; None for the one that the spec names.

    Raises:
        UsageError: a sweep is unknown or teaches nothing, or the suggester would ignore it.
    """
    choice = suggester or choose(SUGGESTERS, spec.suggester)
    learns = choice.kind(SUGGESTERS).uses_context
    names = [one.removeprefix(LIKE) for one in spec.learns]
    earlier = {name: _recorded(ledger.snapshot(name), spec) for name in names}
    for name, table in earlier.items():
        if not table["params"]:
            raise UsageError(
                f"{LIKE}{name}: the sweep has no successful trial with {spec.goals[0].metric} "
                "and a parameter that is tuned here"
            )
    if earlier and not learns:
        raise UsageError(
            f"the suggester {choice.name!r} ignores earlier sweeps: leave like: out, or use 'bayes'"
        )
    return replace(spec, earlier=earlier)


def sweeps_of(spec: SweepSpec) -> Sequence[EarlierSweep]:
    """The earlier sweeps that a spec has recorded."""
    return [
        EarlierSweep(name, table["params"], {m: _floats(v) for m, v in table["losses"].items()})
        for name, table in spec.earlier.items()
    ]


def _recorded(snapshot: Snapshot, spec: SweepSpec) -> dict[str, Any]:
    """Parameters, and the loss by each goal of the sweep, of the first successful trials."""
    rows = [
        (_tuned(trial.params, spec.space), [value(trial, goal) for goal in spec.goals])
        for trial in snapshot.trials
    ]
    rows = [row for row in rows if row[0] and row[1][0] is not None][:MAX_RECORDED]
    return {
        "params": [params for params, _ in rows],
        "losses": {
            goal.metric: [None if (one := v[i]) is None else goal.loss(one) for _, v in rows]
            for i, goal in enumerate(spec.goals)
        },
    }


def _tuned(params: Mapping[str, Any], space: Space) -> dict[str, Any]:
    return {name: v for name, v in params.items() if name in space.parameters}


def _floats(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if one is None else float(one) for one in values]


SuggesterLike = str | Mapping[str, Any] | type[Suggester] | Suggester
StopperLike = str | Mapping[str, Any] | type[Stopper] | Stopper


@dataclass(frozen=True)
class Plugins:
    """The plugins that a sweep has chosen. An object of the user serves one sweep."""

    suggester: PluginChoice[Suggester]
    stopper: PluginChoice[Stopper]

    @classmethod
    def choose(cls, suggester: SuggesterLike, stopper: StopperLike) -> Plugins:
        """What a user names in Python; raises UsageError if it cannot be understood."""
        return cls(
            choose(SUGGESTERS, suggester, Suggester),
            choose(STOPPERS, stopper, Stopper),
        )

    @classmethod
    def of(cls, spec: SweepSpec) -> Plugins:
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
        if proposes and self.suggester.kind(SUGGESTERS).uses_context:
            arguments["context"] = _context(spec, Domain.of(spec))
        return self.stopper.make(STOPPERS, spec.goals, spec.constraints, **arguments)


def _context(spec: SweepSpec, domain: Domain) -> SearchContext:
    return SearchContext(domain, spec.prior, spec.budget, earlier=sweeps_of(spec))
