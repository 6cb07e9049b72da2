"""A command as the objective of a sweep."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from search_spaces.errors import UsageError

from .arguments import check
from .attempt import CommandAttempt
from .csv_file import CSV_FILE
from .patterns import compile_pattern

if TYPE_CHECKING:
    from workers.context import Context

SIDE: Final = "side"  # the parameter that chooses one of two commands
STOP_GRACE: float = 10.0  # seconds between AUTOML_STOP and SIGTERM


@dataclass(frozen=True)
class CommandObjective:
    """An objective that runs a program; docs/guides/script.md describes its protocol.

    Args:
        arguments: the program and its arguments, with braces around names of parameters.
        reports: regular expressions by metric, searched in its standard output; `step` is that of
            the step, `file` is a CSV file.
        folder: the working directory of the program.
        goal: the metric whose matches are steps if there is no expression for the step.
        stop_grace: seconds between a request to stop and SIGTERM.
        in_trial: run it in the folder of its trial instead.
        flags: parameters that are flags themselves (`arguments.flags_of`).
    """

    checks_goals: ClassVar[bool] = True  # it says itself why the goal has no value

    arguments: tuple[str, ...]
    reports: Mapping[str, str] = field(default_factory=dict)
    folder: str = field(default_factory=lambda: str(Path.cwd()))
    goal: str = ""
    stop_grace: float = STOP_GRACE
    in_trial: bool = False
    flags: frozenset[str] = frozenset()

    def check(self, names: Collection[str]) -> None:
        """Check everything that can be checked before a trial runs.

        Args:
            names: of the parameters.

        Raises:
            UsageError: an argument names no parameter, or a pattern is wrong.
        """
        if not self.arguments or not self.arguments[0]:
            raise UsageError("a command begins with a program, got none")
        check(self.arguments, names)
        for metric, text in self.reports.items():
            if metric == CSV_FILE:
                check([text], names)
            else:
                compile_pattern(metric, text)

    def check_program(self) -> None:
        """Check that the program, and a script that it runs, are on this machine.

        Raises:
            UsageError: there is no such program or script.
        """
        program = self.arguments[0]
        found = shutil.which(Path(self.folder, program) if "/" in program else program)
        if found is None and "{" not in program:
            raise UsageError(f"there is no program {program!r} that can be run")
        script = next((one for one in self.arguments[1:] if not one.startswith("-")), "")
        if script.endswith(".py") and "{" not in script and not Path(self.folder, script).exists():
            raise UsageError(f"there is no script {script!r} in {self.folder}")

    def __call__(self, context: Context) -> dict[str, float]:
        """Run one attempt at a trial; returns its result.

        Raises:
            CommandFailed: the command has failed.
        """
        return CommandAttempt(self, context).run()


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
