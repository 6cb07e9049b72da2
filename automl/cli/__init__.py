"""The command line. The verbs are made from `automl.actions`, each when it is typed."""

import sys
from typing import Any, Final

import click

import automl
from automl import _packages  # noqa: F401  # first: another package may have replaced automl
from automl.actions import ACTIONS
from automl.actions.headings import HEADINGS
from automl.core.text import printable
from automl.errors import AutomlError, StoreFailure, UsageError
from search_spaces.plugins import nearest

FAILED, USAGE, NO_SUCCESS, SHOULD_STOP, INTERRUPTED = 1, 2, 3, 10, 130

COMMANDS: Final = tuple(name for name in ACTIONS if " " not in name)  # in the order of the help


class Failure(click.ClickException):
    """An error that ends the program with a message on standard error and an exit status."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(printable(message, keep="\n\t"))
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it from the instance


class Commands(click.Group):
    """The verbs. Turns errors into messages and exit statuses."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every verb."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a verb; None if there is no such verb."""
        from .commands import command_of

        return command_of(ACTIONS[cmd_name]) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The everyday verbs first, the others under their headings."""
        for heading in HEADINGS:
            with formatter.section(heading):
                verbs = [one for one in map(ACTIONS.get, COMMANDS) if one]
                rows = [(one.name, one.summary) for one in verbs if one.heading == heading]
                formatter.write_dl(rows, col_spacing=4)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Suggest the nearest verb for an unknown one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"no such command {args[0]!r}: {nearest(args[0], list(COMMANDS))}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb."""
        try:
            return super().invoke(ctx)
        except AutomlError as error:
            usage = isinstance(error, UsageError) and not isinstance(error, StoreFailure)
            raise Failure(str(error), USAGE if usage else FAILED) from error
        except PermissionError as error:  # such as a store of another account
            raise Failure(f"{error.filename or 'a file'}: {error.strerror}", USAGE) from error
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(automl.__version__, prog_name="automl")
def cli() -> None:
    """Find good training configurations by Bayesian optimisation.

    \b
    Examples:
      automl sweep configs/nmt.yaml              run a sweep
      automl sweep configs/nmt.yaml --dry-run    check it and show what would be tuned
      automl status nmt                          show its progress, from another terminal
      automl best nmt --json                     print the best configuration as JSON
      automl resume nmt                          continue after an interruption

    \b
    Shell completion of verbs, options and names of sweeps:
      eval "$(_AUTOML_COMPLETE=bash_source automl)"    bash; likewise zsh_source
      _AUTOML_COMPLETE=fish_source automl | source     fish

    Exit status: 0 done, 1 failed, 2 wrong usage or configuration, 3 no trial succeeded (`ask`: no
    trial is left; `ab`: not known), 10 the trial should stop (`tell`) or B is not better
    (`ab`), 130 interrupted and resumable.
    """


def main() -> None:
    """Entry point of the program `automl`."""
    sys.exit(cli(prog_name="automl"))
