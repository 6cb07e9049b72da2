"""A command after `--` on the command line: `automl sweep CONFIG -- PROGRAM ARG ...`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from .objective import load_objective

if TYPE_CHECKING:
    from automl.core import SweepSpec


@dataclass(frozen=True)
class Program:
    """A command as it was typed.

    Args:
        arguments: the program and its arguments.
    """

    arguments: tuple[str, ...]

    def __str__(self) -> str:
        """What to type again."""
        from automl.core.resuming import shell_line

        return f"-- {shell_line(self.arguments)}"


class ProgramVerb(click.Command):
    """A verb whose arguments may end in `-- PROGRAM ARG ...`; it gets a `program`, or None."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """With the command at the end."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND [ARG]...]"]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Everything behind the first `--` is the command."""
        own, program = args, None
        if "--" in args:
            place = args.index("--")
            own, program = args[:place], tuple(args[place + 1 :])
        rest = super().parse_args(ctx, own)
        if program is not None and not program:
            raise click.UsageError("a command is needed after --, such as -- python train.py", ctx)
        if program is not None and ctx.params.get("objective"):
            raise click.UsageError("--objective or a command after --: leave one out", ctx)
        ctx.params["program"] = None if program is None else Program(program)
        return rest


def load_trained(
    spec: SweepSpec, objective: str | None, program: Program | None
) -> Callable[[Any], Any] | None:
    """What the trials of a sweep run: a function, a command, or None for its workload.

    Args:
        spec: of the sweep; a command is given its goal and its `reports`.
        objective: FILE:NAME of a function.
        program: after `--`.

    Raises:
        UsageError: it cannot be run.
    """
    if program is None:
        return load_objective(objective)
    from workers.command import CommandObjective
    from workers.command.arguments import flags_of

    parameters = spec.known_space.parameters
    command = CommandObjective(
        program.arguments,
        spec.reports,
        goal=spec.goals[0].metric,
        stop_grace=spec.stop_grace,
        in_trial=spec.cwd == "trial",
        flags=flags_of(parameters),
    )
    command.check(parameters)
    command.check_program()
    return command
