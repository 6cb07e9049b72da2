"""Taking up what people ask of a running sweep: limits on its parameters, and configurations to try next."""

from __future__ import annotations

from automl.core.events import Command, Proposed
from automl.errors import AutomlError
from automl.stopping.base import Stopper
from automl.suggesters.domain import Domain, updated_limits
from automl.suggesters.queue import SuggestionQueue
from workers.protocol import Params

from .journal import Journal


class Wishes:
    """Fulfils what was asked, once each. Used from the controller's thread.

    Args:
        journal: of the sweep.
        suggestions: proposes within limits.
        stopper: may propose within limits too.
    """

    def __init__(self, journal: Journal, suggestions: SuggestionQueue, stopper: Stopper) -> None:
        self._journal = journal
        self._suggestions = suggestions
        self._stopper = stopper
        self._domain = Domain(journal.spec.space)
        self._fulfilled: set[int] | None = None

    def allows(self, params: Params) -> bool:
        """Whether a configuration lies within the limits."""
        return not self._domain.limits or self._domain.legal(params)

    def take(self, *, look: bool = False) -> None:
        """Take up what was asked since the last time, up to the last commit or, to `look`, up to now."""
        wishes = self._journal.wishes(look=look)
        limits = [wish for _, wish in wishes if wish.kind == "limits"]
        if limits:
            self._limit(limits)
        for identity, wish in wishes:
            if wish.kind == "enqueue":
                self._enqueue(identity, dict(wish.content))

    def _limit(self, wishes: list[Command]) -> None:
        limits = updated_limits([wish.content for wish in wishes], self._domain.limits)
        try:
            domain = Domain(self._domain.space, limits)
        except AutomlError as error:
            self._journal.note("limits", f"not obeyed: {error}")
            return
        self._domain = domain
        self._suggestions.restrict(domain)
        self._stopper.restrict(domain)

    def _enqueue(self, identity: int, params: Params) -> None:
        journal = self._journal
        if self._fulfilled is None:
            self._fulfilled = journal.fulfilled()
        if identity not in self._fulfilled and journal.spec.space.legal(params):
            self._fulfilled.add(identity)
            journal.apply(
                Proposed(len(journal.trials), params, "enqueued", journal.now, command=identity)
            )
