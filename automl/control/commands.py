"""Obeys people's commands to a running sweep: limits on parameters, and configurations to try."""

from __future__ import annotations

from automl.core.events import Proposed, Wished
from automl.errors import AutomlError
from automl.ledger import Recorder
from automl.suggesters.domain import Limit, fold, narrowed
from automl.suggesters.queue import Suggestions
from workers.protocol import Params

from .journal import Journal


class SweepCommands:
    """Obeys each command once. Used from the controller's thread.

    Args:
        journal: of the sweep.
        recorder: reads the commands from the ledger.
        suggestions: obey the limits too.
    """

    def __init__(self, journal: Journal, recorder: Recorder, suggestions: Suggestions) -> None:
        self._journal = journal
        self._recorder = recorder
        self._suggestions = suggestions
        self._limits: dict[str, Limit] = {}
        self._space = journal.spec.space  # within the limits
        self._executed: set[int] | None = None  # read when the first configuration is enqueued

    def allows(self, params: Params) -> bool:
        """Whether a configuration is within the limits."""
        return not self._limits or self._space.legal(params)

    def execute(self, *, refresh: bool = False) -> None:
        """Obey new commands: those that the last commit has found or, if `refresh`, all."""
        commands = self._recorder.wishes(look=refresh)
        limits = [command for _, command in commands if command.kind == "limits"]
        if limits:
            self._limit(limits)
        for identity, command in commands:
            if command.kind == "enqueue":
                self._enqueue(identity, dict(command.content))

    def _limit(self, commands: list[Wished]) -> None:
        limits = fold(commands, self._limits)
        try:
            space = narrowed(self._journal.spec.space, limits)
        except AutomlError as error:
            self._journal.note("limits", f"not obeyed: {error}")
            return
        self._limits = limits
        self._space = space
        self._suggestions.restrict(limits, space)

    def _enqueue(self, identity: int, params: Params) -> None:
        journal = self._journal
        if self._executed is None:
            self._executed = self._recorder.fulfilled()
        if identity not in self._executed and journal.spec.space.legal(params):
            self._executed.add(identity)
            journal.apply(
                Proposed(len(journal.trials), params, "enqueued", journal.now, wish=identity)
            )
