"""What people have asked of a sweep: their marks, their limits, and their latest commands."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from automl.core import Command
from automl.core.marks import NO_MARKS, Marks, add_marks
from automl.core.text import configuration
from automl.suggesters.domain import Limit, updated_limits

if TYPE_CHECKING:
    from automl.ledger import Ledger

MAX_SHOWN: Final = 30  # commands
OF_AGENTS: Final = frozenset({"ask", "report", "tell", "fail"})


class CommandLog:
    """The commands to one sweep; each is read once.

    Args:
        ledger: open for reading; sweep: its name.
    """

    def __init__(self, ledger: Ledger, sweep: str) -> None:
        self._ledger = ledger
        self._sweep = sweep
        self._read: Any = None
        self._marks: Marks = {}
        self._limits: dict[str, Limit] = {}
        self._latest: deque[Command] = deque(maxlen=MAX_SHOWN)

    def refresh(self, num_commands: int) -> set[int]:
        """Read what is new; return the numbers of the trials whose marks have changed.

        Args:
            num_commands: that the sweep has been given, as its row says.
        """
        if num_commands == (self._read.num if self._read else 0):
            return set()
        after = {} if self._read is None else {"after": self._read}
        found, self._read = self._ledger.new_commands(self._sweep, **after)
        commands = [command for _, command in found]
        limits = (command.content for command in commands if command.kind == "limits")
        self._limits = updated_limits(limits, self._limits)
        self._latest.extend(one for one in commands if one.kind not in OF_AGENTS)
        return {number for number in add_marks(self._marks, commands) if number is not None}

    def marks(self, trial: int | None = None) -> Mapping[str, Any]:
        """The marks of a trial, or of the sweep."""
        return self._marks.get(trial, NO_MARKS)

    def limits(self) -> dict[str, str]:
        """The limit of each parameter that has one, in words."""
        return {name: str(limit) for name, limit in self._limits.items()}

    def latest(self) -> list[dict[str, Any]]:
        """The latest commands of people, the newest one first; `when` in seconds since 1970."""
        return [
            {
                "kind": one.kind,
                "trial": one.trial,
                "by": one.by,
                "when": one.sent,
                "words": in_words(one),
            }
            for one in reversed(self._latest)
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
        case "mark":
            return f"mark {_marked(content)}"
    return command.kind.replace("_trial", "")


def _marked(content: Mapping[str, Any]) -> str:
    found = []
    if "star" in content:
        found.append("with a star" if content["star"] else "without a star")
    found += [f"+{tag}" for tag in content.get("add_tags", ())]
    found += [f"−{tag}" for tag in content.get("remove_tags", ())]
    if "note" in content:
        found.append("with a note" if content["note"] else "without a note")
    if "archived" in content:
        found.append("as archived" if content["archived"] else "as not archived")
    return ", ".join(found)
