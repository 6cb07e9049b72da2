"""The command line. A verb is a function of a module here, imported when the verb is typed."""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import click

import automl
from automl import _packages  # noqa: F401  # first: another package may have replaced automl
from automl.core.text import printable
from automl.errors import AutomlError, StoreFailure, UsageError
from search_spaces.plugins import nearest

FAILED, USAGE, NO_SUCCESS, SHOULD_STOP, INTERRUPTED = 1, 2, 3, 10, 130

# Under each heading of the help, the verbs and their modules.
HEADINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "Every day": {
        "init": "init",
        "sweep": "sweep",
        "resume": "resume",
        "status": "looking",
        "watch": "looking",
        "trials": "looking",
        "best": "looking",
        "report": "results",
        "list": "looking",
        "studio": "results",
        "export": "results",
        "stop": "steering",
    },
    "Look closer": {"logs": "looking"},
    "Steer a sweep": {"pause": "steering", "enqueue": "steering", "set": "steering"},
    "Train the best again, use it elsewhere": {"confirm": "confirm", "ab": "ab"},
    "Run trials by programs of your own": {"ask": "agents", "tell": "agents", "mcp": "mcp"},
    "Before a sweep": {
        "speed": "speed",
        "space": "space",
        "launch": "launch",
        "workloads": "machine",
        "doctor": "machine",
    },
    "Care for a store": {"delete": "steering"},
}
MODULES: Final = {verb: module for verbs in HEADINGS.values() for verb, module in verbs.items()}
COMMANDS: Final = tuple(MODULES)  # in the order of the help


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
        if cmd_name not in MODULES:
            return None
        known = vars(import_module(f".{MODULES[cmd_name]}", __name__)).values()
        verbs = (one for one in known if isinstance(one, click.Command) and one.name == cmd_name)
        return next(verbs)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The everyday verbs first, the others under their headings."""
        for heading, verbs in HEADINGS.items():
            commands = {verb: self.get_command(ctx, verb) for verb in verbs}
            rows = [(verb, one.short_help or "") for verb, one in commands.items() if one]
            with formatter.section(heading):
                formatter.write_dl(rows, col_spacing=4)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Suggest the nearest verb for an unknown one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"no such command {args[0]!r}: {nearest(args[0], list(COMMANDS))}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> None:
        """Run the verb; a number that it returns is the exit status."""
        try:
            if status := super().invoke(ctx):
                ctx.exit(status)
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
