"""Makes suggesters, checks their answers, and uses `random` instead when one fails."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from automl.core import Constraint, Goal, Trial, TrialState
from automl.core.key_kinds import PluginChoice, choose
from automl.core.ranking import best, deterministic, differ, due, may_repeat, original
from search_spaces.errors import AutomlError, SpaceError
from workers.protocol import Params

from . import SUGGESTERS
from .base import Prospect, SearchContext, Suggester
from .domain import Domain, TrialKeys

MakeSuggester = Callable[[str, Domain], Suggester]
MAX_FAILURES: Final = 3
FALLBACK: Final = "random"  # imports nothing, so it never waits for an import of torch in a thread


def make_suggester(
    named: str | PluginChoice[Suggester],
    goals: Sequence[Goal],
    constraints: Sequence[Constraint],
    context: SearchContext,
    *,
    seed: int = 0,
) -> Suggester:
    """The suggester that a user names, which proposes within the domain.

    It gets the context if it uses one (`Suggester.uses_context`), else only the narrowed space.
    """
    choice = choose(SUGGESTERS, named)
    domain = context.domain
    if choice.kind(SUGGESTERS).uses_context:
        return choice.make(SUGGESTERS, domain.space, goals, constraints, seed=seed, context=context)
    inner = choice.make(SUGGESTERS, domain.inner, goals, constraints, seed=seed)
    return DomainSuggester(domain, inner) if domain.narrow else inner


class DomainSuggester(Suggester):
    """Another suggester in a narrower space, which sees only the trials within it.

    Args:
        domain: what may be proposed.
        inner: a suggester of `domain.inner`.
    """

    name: ClassVar[str] = "domain"

    def __init__(self, domain: Domain, inner: Suggester) -> None:
        super().__init__(domain.space, inner.goals, inner.constraints, seed=inner.seed)
        self._domain = domain
        self._inner = inner

    def suggest(
        self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1
    ) -> list[Params]:
        known = [trial for trial in history if self._domain.legal(trial.params)]
        waiting = [trial for trial in pending if self._domain.legal(trial.params)]
        return self._inner.suggest(known, waiting, count)


@dataclass(frozen=True)
class Proposal:
    """A configuration to try.

    Args:
        params: the configuration.
        source: name of the suggester that proposed it.
        replicate_of: number of its first trial, if it has run before.
    """

    params: Params
    source: str
    replicate_of: int | None = None


@dataclass(frozen=True)
class ProposalBatch:
    """The answer to one call of a suggester.

    Args:
        proposals: checked: legal, different from each other and from the pending trials; none if
            the space has no more configurations.
        seconds: how long it took.
        note: why the suggester could not be used, "" if it could.
        prospect: what it promises, None if it is unknown.
    """

    proposals: list[Proposal] = field(default_factory=list)
    seconds: float = 0.0
    note: str = ""
    prospect: Prospect | None = None


class Proposer:
    """A suggester with a safety net. Used from one thread at a time.

    Args:
        make: makes the suggester of a name within a domain. It is called when the suggester is
            first needed, so that a heavy one is imported in the thread that uses it.
        name: of the suggester.
        domain: what may be proposed.
        prospects: whether they should have the prospect, which takes as long as a suggestion.
        replicates: which configurations run again: "auto", "none", or the runs of each.
    """

    def __init__(
        self,
        make: MakeSuggester,
        name: str,
        domain: Domain,
        *,
        prospects: bool = False,
        replicates: str | int = "none",
    ) -> None:
        self.name = name
        self._replicates = replicates
        self._make = make
        self._prospects = prospects
        self._domain = domain
        self._made: dict[str, Suggester] = {}
        self._pending_keys = TrialKeys(domain.space)
        self._failures = 0

    def propose(
        self,
        history: Sequence[Trial],
        pending: Sequence[Trial],
        count: int,
        *,
        last_part: bool = False,
    ) -> ProposalBatch:
        """Up to `count` proposals.

        Args:
            history, pending: as in `Suggester.suggest`.
            last_part: whether only the last part of the budget is left, in which trials may repeat.

        Raises:
            AutomlError: the suggester has failed three times in a row; the message quotes the
                last error.
        """
        begun = time.perf_counter()
        if not self._domain.space.parameters:  # nobody knows yet what trials will ask for
            done = any(trial.state is TrialState.COMPLETED for trial in history)
            return ProposalBatch([] if done else [Proposal({}, FALLBACK)] * count)
        history, pending, note = self._fitted(history), self._fitted(pending), ""
        try:
            found, prospect = self._proposals(history, pending, count, last_part=last_part)
            self._failures = 0
        except Exception as error:  # no error of a suggester may end the sweep
            note = self._noted(error)
            params = self._ask(self._suggester(FALLBACK), history, pending, count)
            found, prospect = [Proposal(one, FALLBACK) for one in params], None
        return ProposalBatch(found, time.perf_counter() - begun, note, prospect)

    def _proposals(
        self, history: Sequence[Trial], pending: Sequence[Trial], count: int, *, last_part: bool
    ) -> tuple[list[Proposal], Prospect | None]:
        suggester, prospect = self._suggester(self.name), None
        found = self._due(suggester, history, pending)[:count]
        if len(found) == count:
            return found, None
        params = self._ask(suggester, history, pending, count - len(found))
        first = params[0] if params else None
        ends = self._replicates == "auto" and (last_part or first is None)
        repeats = ends and self._may_repeat(history, pending, suggester.goals[0])
        if repeats or self._prospects:
            prospect = suggester.prospect(history, pending, first)
        if repeats and prospect is not None:
            found += self._again(suggester, history, pending, prospect)
        return [*found, *(Proposal(one, self.name) for one in params)][:count], prospect

    def warm(self) -> None:
        """See `Suggester.warm`. An error comes again when the suggester is asked."""
        with suppress(Exception):
            self._suggester(self.name).warm()

    def restrict(self, domain: Domain | None = None, make: MakeSuggester | None = None) -> None:
        """See `SuggestionQueue.restrict`; may be called from any thread."""
        self._domain, self._make = domain or self._domain, make or self._make
        self._made = {}
        self._pending_keys = TrialKeys(self._domain.space)

    def _due(
        self, suggester: Suggester, history: Sequence[Trial], pending: Sequence[Trial]
    ) -> list[Proposal]:
        """Configurations that have fewer runs than `replicates` says."""
        wanted = self._replicates
        if isinstance(wanted, str) or deterministic(history, suggester.goals[0]):
            return []
        return [
            Proposal(trial.params, trial.source, trial.number)
            for trial in due(history, pending, wanted)
            if self._domain.legal(trial.params)
        ]

    def _may_repeat(self, history: Sequence[Trial], pending: Sequence[Trial], goal: Goal) -> bool:
        """Whether a configuration may run again: not if runs are equal, or too many have."""
        # Values of trials that were stopped early look like noise to the model.
        stopped = any(trial.state is TrialState.STOPPED for trial in history)
        seen = differ(history, goal)
        # What a first repeated run teaches is known once it has ended.
        waits = seen is None and any(trial.replicate_of is not None for trial in pending)
        return may_repeat([*history, *pending]) and not (stopped or waits or seen is False)

    def _again(
        self,
        suggester: Suggester,
        history: Sequence[Trial],
        pending: Sequence[Trial],
        prospect: Prospect,
    ) -> list[Proposal]:
        """A trial that runs again, because it teaches more than a new one; none if none does.

        The best is the first to run again: that shows whether runs differ.
        """
        first = all(trial.replicate_of is None for trial in history)
        done = [trial for trial in history if trial.state is TrialState.COMPLETED]
        leader = best(done, suggester.goals[:1], suggester.constraints) if first else None
        number = leader.number if leader is not None else prospect.repeat
        return [
            Proposal(trial.params, self.name, original(trial))
            for trial in history
            if trial.number == number
            and trial.params not in [one.params for one in pending]
            and self._domain.legal(trial.params)
        ]

    def _noted(self, error: Exception) -> str:
        """What to tell of an error; raises AutomlError if there were too many in a row."""
        self._failures += 1
        cause = f"{type(error).__name__}: {error}"
        if self.name == FALLBACK or self._failures >= MAX_FAILURES:
            raise AutomlError(
                f"the suggester {self.name!r} failed {self._failures} times in a row: {cause}"
            ) from error
        return f"the suggester {self.name!r} failed, {FALLBACK} proposes instead: {cause}"

    def _fitted(self, trials: Sequence[Trial]) -> Sequence[Trial]:
        if not self._domain.changed:
            return trials
        return [replace(trial, params=self._domain.fitted(trial.params)) for trial in trials]

    def _suggester(self, name: str) -> Suggester:
        made = self._made  # `restrict` may replace it meanwhile
        if name not in made:
            made[name] = self._make(name, self._domain)
        return made[name]

    def _ask(
        self, suggester: Suggester, history: Sequence[Trial], pending: Sequence[Trial], count: int
    ) -> list[Params]:
        answer = suggester.suggest(history, pending, count)
        taken = self._pending_keys(pending)
        fresh: list[Params] = []
        for given in answer[:count]:
            params = suggester.space.accept(given, whole=True)
            key = suggester.space.key(params)
            if key not in taken:
                taken.add(key)
                fresh.append(params)
        if answer and not fresh:
            raise SpaceError("it proposed only configurations that are being tried already")
        return fresh
