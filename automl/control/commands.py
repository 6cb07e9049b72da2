"""Obeys commands to a running sweep: limits on parameters, and configurations to try.

Requests of agents and people, which get an answer, are passed on to `requests`.
"""

import time
from typing import Final

from automl.core import Command, Proposed
from automl.errors import AutomlError
from automl.ledger import SweepRecorder
from automl.stopping.base import Stopper
from automl.suggesters.domain import Domain, updated_limits
from automl.suggesters.queue import SuggestionQueue
from search_spaces.validation import plain_params
from workers.protocol import Params

from .journal import Journal

LOOK_SECONDS: Final = 0.25  # between two looks into the store, if nothing is committed
_NO_REQUESTS: Final = ("limits", "stop", "mark")


class SweepCommands:
    """Obeys each command once. Used from the controller's thread.

    Args:
        journal: of the sweep.
        recorder: reads the commands from the ledger.
        suggestions: propose within the limits.
        stopper: may propose too.
    """

    def __init__(
        self,
        journal: Journal,
        recorder: SweepRecorder,
        suggestions: SuggestionQueue,
        stopper: Stopper,
    ) -> None:
        self._journal = journal
        self._recorder = recorder
        self._suggestions = suggestions
        self._stopper = stopper
        self._domain = Domain.of(journal.spec)
        self._executed: set[int] | None = None  # read when it is first needed
        self._requests: list[tuple[int, Command]] = []
        self._looked = time.monotonic()

    def allows(self, params: Params) -> bool:
        """Whether a configuration is within the limits."""
        return not self._domain.narrow or self._domain.legal(params)

    def execute(self, *, refresh: bool = False) -> None:
        """Obey new commands: those that the last commit has found or, if `refresh`, all."""
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._looked = time.monotonic()
            self._journal.look()
        commands = self._recorder.new_commands(refresh=refresh)
        limits = [command for _, command in commands if command.kind == "limits"]
        if limits:
            self._limit(limits)
        for identity, command in commands:
            if command.kind == "enqueue":
                self._enqueue(identity, plain_params(command.content))
            elif command.kind not in _NO_REQUESTS and self._is_new(identity):
                self._requests.append((identity, command))

    def take_requests(self) -> list[tuple[int, Command]]:
        """Identity and content of new requests of agents and people, in order."""
        found, self._requests = self._requests, []
        return found

    def _limit(self, commands: list[Command]) -> None:
        limits = updated_limits([command.content for command in commands], self._domain.limits)
        try:
            domain = self._domain.within(limits)
        except AutomlError as error:
            self._journal.note("limits", f"not obeyed: {error}")
            return
        self._domain = domain
        self._suggestions.restrict(domain)
        self._stopper.restrict(domain)

    def _enqueue(self, identity: int, params: Params) -> None:
        journal = self._journal
        if journal.spec.space.legal(params) and self._is_new(identity):
            journal.apply(
                Proposed(len(journal.trials), params, "enqueued", journal.now, command=identity)
            )

    def _is_new(self, identity: int) -> bool:
        """Whether a command was not executed before; from now on it is."""
        if self._executed is None:
            self._executed = self._recorder.executed_commands()
        if identity in self._executed:
            return False
        self._executed.add(identity)
        return True
