"""What people have asked of a sweep: their limits, and their latest commands."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from automl.core import Command
from automl.core.text import configuration
from automl.suggesters.domain import updated_limits

if TYPE_CHECKING:
    from automl.ledger.follower import Follower

MAX_SHOWN: Final = 30  # commands
OF_AGENTS: Final = frozenset({"ask", "report", "tell", "fail"})


class CommandLog:
    """The commands to one sweep, as a follower of its log has read them."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower

    def limits(self) -> dict[str, str]:
        """The limit of each parameter that has one, in words."""
        limits = updated_limits([self._follower.state.limits])
        return {name: str(limit) for name, limit in limits.items()}

    def latest(self) -> list[dict[str, Any]]:
        """The latest commands of people, the newest one first; `when` in seconds since 1970."""
        people = (one for one in reversed(self._follower.commands) if one.kind not in OF_AGENTS)
        return [
            {
                "kind": one.kind,
                "trial": one.trial,
                "by": one.by,
                "when": one.sent,
                "words": in_words(one),
            }
            for one in islice(people, MAX_SHOWN)
        ]


def in_words(command: Command) -> str:
    """What a command asks for."""
    content = command.content
    match command.kind:
        case "stop":
            return "stop the sweep"
        case "limits":
            limits = updated_limits([content])
            found = [f"{name}: {limit}" for name, limit in limits.items()]
            return "limit " + "; ".join(
                found + [f"{name}: released" for name, value in content.items() if value is None]
            )
        case "enqueue":
            return f"try {configuration(content)}"
        case "budget":
            parts = (f"{key} {'without end' if v is None else v}" for key, v in content.items())
            return f"budget: {', '.join(parts)}"
    return command.kind.replace("_trial", "")
