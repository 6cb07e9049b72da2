"""One of two commands as the objective of a sweep, chosen by a parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from .command import CommandObjective

if TYPE_CHECKING:
    from workers.context import Context

SIDE: Final = "side"  # the parameter


@dataclass(frozen=True)
class EitherCommand:
    """An objective that runs the command of the trial's parameter `side`.

    Args:
        commands: by value of the parameter.
    """

    checks_goals: ClassVar[bool] = CommandObjective.checks_goals

    commands: Mapping[str, CommandObjective]

    def __call__(self, context: Context) -> dict[str, float]:
        """Run one attempt at a trial; returns its result.

        Raises:
            CommandFailed: the command has failed.
        """
        return self.commands[str(context.assignment.params[SIDE])](context)
