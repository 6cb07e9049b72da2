"""Obeys commands to a running sweep: limits on parameters, and configurations to try.

Requests of agents and people, which get an answer, are served by `requests`.
"""

import time
from typing import Final

from automl.core import Command
from automl.core.state import ENQUEUE
from automl.errors import AutomlError
from automl.stopping.base import Stopper
from automl.suggesters.domain import Domain, updated_limits
from automl.suggesters.queue import SuggestionQueue
from workers.protocol import Params

from .journal import Journal

LOOK_SECONDS: Final = 0.25  # between two looks into the store, if nothing is committed


class SweepCommands:
    """Obeys each command once. Used from the controller's thread.

    Args:
        journal: of the sweep.
        suggestions: propose within the limits.
        stopper: may propose too.
    """

    def __init__(self, journal: Journal, suggestions: SuggestionQueue, stopper: Stopper) -> None:
        self._journal = journal
        self._suggestions = suggestions
        self._stopper = stopper
        self._domain = Domain.of(journal.spec)
        self._limits: dict[str, object] = {}  # that were obeyed or refused last
        self._looked = time.monotonic()

    def allows(self, params: Params) -> bool:
        """Whether a configuration is within the limits."""
        return not self._domain.narrow or self._domain.legal(params)

    def respace(self) -> None:
        """The space of the sweep has grown; the limits stay."""
        self._domain = Domain.of(self._journal.spec)
        self._limit()

    def execute(self, *, refresh: bool = False) -> None:
        """Obey new commands: those that the last commit has found or, if `refresh`, all."""
        if refresh or time.monotonic() - self._looked > LOOK_SECONDS:
            self._looked = time.monotonic()
            self._journal.look()
        state = self._journal.state
        if state.limits != self._limits:
            self._limits = dict(state.limits)
            self._limit()
        for number, command in list(state.requests.items()):
            if command.kind == ENQUEUE:
                self._enqueue(number, command)

    def _limit(self) -> None:
        try:
            domain = self._domain.within(updated_limits([self._limits]))
        except AutomlError as error:
            self._journal.note("limits", f"not obeyed: {error}")
            return
        self._domain = domain
        self._suggestions.restrict(domain)
        self._stopper.restrict(domain)

    def _enqueue(self, number: int, command: Command) -> None:
        try:
            params = self._journal.spec.space.accept(command.content)
        except AutomlError as error:
            self._journal.answer(number, {"error": str(error), "usage": True})
        else:
            self._journal.propose(params, "enqueued", number, command.trial)
