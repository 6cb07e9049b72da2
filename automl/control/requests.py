"""Serves the requests to a sweep in order: each gets one answer, committed with its effects."""

from collections.abc import Mapping
from typing import Any

from automl.core import Answered, Command
from automl.core.text import json_data
from automl.dispatch.base import Dispatcher
from automl.errors import AutomlError, UsageError

from .agents import Agents, TakeIn
from .commands import SweepCommands
from .journal import Journal
from .steering import Steering


class Requests:
    """Serves agents and people. Used from the controller's thread.

    Args:
        journal: of the sweep.
        commands: have the new requests.
        agents, steering: answer them.

    Attributes:
        waiting: requests that have no answer yet: agents that wait for a proposal.
    """

    def __init__(
        self, journal: Journal, commands: SweepCommands, agents: Agents, steering: Steering
    ) -> None:
        self._journal = journal
        self._commands = commands
        self._agents = agents
        self._steering = steering
        self.waiting: list[tuple[int, Command]] = []

    def serve(self, dispatcher: Dispatcher, take_in: TakeIn) -> bool:
        """Answer what can be answered; whether anything has changed.

        Args:
            take_in: takes a report or an outcome as if a worker had sent it.
        """
        self._commands.execute()
        found = [*self.waiting, *self._commands.take_requests()]
        self.waiting = []
        # Agents that report go first, then those that are lost give their trials back.
        others = [one for one in found if one[1].kind != "ask"]
        asks = [one for one in found if one[1].kind == "ask"]
        changed = self._answer_all(others, dispatcher, take_in)
        self._agents.expire(take_in)
        return self._answer_all(asks, dispatcher, take_in) or changed

    def _answer_all(
        self, requests: list[tuple[int, Command]], dispatcher: Dispatcher, take_in: TakeIn
    ) -> bool:
        journal, changed = self._journal, False
        for identity, command in requests:
            answer = self._answer(identity, command, dispatcher, take_in)
            if answer is None:
                self.waiting.append((identity, command))
                continue
            changed = True
            journal.apply(Answered(identity, json_data(answer), command.trial, journal.now))
        return changed

    def _answer(
        self, identity: int, command: Command, dispatcher: Dispatcher, take_in: TakeIn
    ) -> Mapping[str, Any] | None:
        try:
            match command.kind:
                case "ask":
                    return self._agents.ask(command, dispatcher)
                case "report":
                    return self._agents.report(command, take_in)
                case "tell":
                    return self._agents.tell(command, take_in)
                case "fail":
                    return self._agents.fail(command, take_in)
            return self._steering.answer(identity, command, dispatcher)
        except AutomlError as error:
            return {"error": str(error), "usage": isinstance(error, UsageError)}
