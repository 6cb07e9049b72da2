"""Serves the requests to a sweep in order: each gets one answer, committed with its effects."""

from collections.abc import Mapping
from typing import Any

from automl.core import Command
from automl.errors import AutomlError, UsageError

from .agents import Agents, TakeIn
from .commands import SweepCommands
from .journal import Journal
from .steering import Steering


class Requests:
    """Serves agents and people. Used from the controller's thread.

    Args:
        journal: of the sweep.
        commands: obeys those that need no answer.
        agents, steering: answer the others.
    """

    def __init__(
        self, journal: Journal, commands: SweepCommands, agents: Agents, steering: Steering
    ) -> None:
        self._journal = journal
        self._commands = commands
        self._agents = agents
        self._steering = steering

    @property
    def waiting(self) -> bool:
        """Whether requests have no answer yet: agents that wait for a proposal."""
        return bool(self._journal.state.requests)

    def serve(self, take_in: TakeIn) -> bool:
        """Answer what can be answered; whether there was any.

        Args:
            take_in: takes a report or an outcome as if a worker had sent it.
        """
        self._commands.execute()
        found = list(self._journal.state.requests.items())
        # Agents that report go first, then those that are lost give their trials back.
        others = [self._serve(*one, take_in) for one in found if one[1].kind != "ask"]
        self._agents.expire(take_in)
        asks = [self._serve(*one, take_in) for one in found if one[1].kind == "ask"]
        return any(others + asks)

    def _serve(self, number: int, command: Command, take_in: TakeIn) -> bool:
        """Answer a request, if only by why it cannot be done; False if it has to wait."""
        try:
            answer = self._answer(command, take_in)
        except AutomlError as error:
            answer = {"error": str(error), "usage": isinstance(error, UsageError)}
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            text = f"the request {command.kind!r} is malformed: {type(error).__name__}: {error}"
            answer = {"error": text, "usage": True}
        if answer is not None:
            self._journal.answer(number, answer, command.trial)
        return answer is not None

    def _answer(self, command: Command, take_in: TakeIn) -> Mapping[str, Any] | None:
        match command.kind:
            case "ask":
                return self._agents.ask(command)
            case "report":
                return self._agents.report(command, take_in)
            case "tell":
                return self._agents.tell(command, take_in)
            case "fail":
                return self._agents.fail(command, take_in)
        return self._steering.answer(command)
