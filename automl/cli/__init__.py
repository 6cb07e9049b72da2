"""The command line. A verb is a function of a module here, imported when the verb is typed."""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import click

import automl
from automl.core import KEYS
from automl.core.text import printable
from automl.errors import AutomlError, StoreFailure, UsageError
from search_spaces.errors import hint
from search_spaces.plugins import nearest

FAILED, USAGE, NO_SUCCESS, SHOULD_STOP, INTERRUPTED = 1, 2, 3, 10, 130

# Under each heading of the help, the verbs: their modules, and what they do.
HEADINGS: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "Every day": {
        "init": ("before", "Write a first configuration."),
        "sweep": ("sweep", "Run a sweep."),
        "resume": ("running", "Continue an interrupted sweep, or a paused trial."),
        "status": ("looking", "Show the progress of a sweep."),
        "watch": ("looking", "Watch a running sweep live."),
        "trials": ("looking", "List the trials of a sweep."),
        "best": ("looking", "Show the best configuration."),
        "report": ("looking", "Write the report of a sweep as an HTML file."),
        "list": ("looking", "List the sweeps of a store."),
        "studio": ("looking", "See every sweep of a store in a browser."),
        "export": ("looking", "Write the best model, its configuration and a model card."),
        "stop": ("steering", "Stop a running sweep, or one trial."),
    },
    "Look closer": {
        "logs": ("looking", "Show the output of a trial."),
    },
    "Steer a sweep": {
        "pause": ("steering", "Pause a running trial."),
        "enqueue": (
            "steering",
            "Give the sweep a configuration to try next, or a trial to try again.",
        ),
        "set": (
            "steering",
            "Change the budget, the workers or the space of a sweep, also while it runs.",
        ),
    },
    "Train the best again, use it elsewhere": {
        "confirm": ("running", "Train the best again: is their lead more than noise?"),
        "ab": ("running", "Is B better than A? Two programs."),
    },
    "Run trials by programs of your own": {
        "ask": ("steering", "Get a trial to run elsewhere."),
        "tell": ("steering", "Report a step of a trial from `automl ask`, or its result."),
        "mcp": ("steering", "Serve a store to agents by the Model Context Protocol."),
    },
    "Before a sweep": {
        "speed": ("before", "Find the fastest settings that cannot change the result."),
        "space": ("sweep", "Show the search space on this hardware."),
        "launch": ("before", "Run a sweep as a job of Slurm."),
        "workloads": ("before", "List the workloads, or fetch a data set."),
        "doctor": ("before", "Show what this machine can run."),
    },
    "Care for a store": {
        "delete": ("steering", "Delete a sweep and its files."),
    },
}
VERBS: Final = {verb: row for verbs in HEADINGS.values() for verb, row in verbs.items()}
COMMANDS: Final = tuple(VERBS)  # in the order of the help


class Commands(click.Group):
    """The verbs. Turns errors into messages and exit statuses."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every verb."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a verb; None if there is no such verb."""
        if cmd_name not in VERBS:
            return None
        module, summary = VERBS[cmd_name]
        known = vars(import_module(f".{module}", __name__)).values()
        verbs = (one for one in known if isinstance(one, click.Command) and one.name == cmd_name)
        found = next(verbs)
        found.short_help = summary
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The everyday verbs first, the others under their headings."""
        for heading, verbs in HEADINGS.items():
            rows = [(verb, summary) for verb, (_, summary) in verbs.items()]
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
            _fail(ctx, str(error), USAGE if usage else FAILED)
        except OSError as error:  # such as a store of another account
            if error.filename is None:
                raise
            _fail(ctx, f"{error.filename}: {error.strerror}", USAGE)
        except click.NoSuchOption as error:
            key = error.option_name.lstrip("-").replace("-", "_")
            takes = error.ctx is not None and "[KEY=VALUE]" in error.ctx.get_usage()
            if takes and (said := f"; write {key}=VALUE" if key in KEYS else hint(key, ())):
                raise click.UsageError(
                    f"No such option {error.option_name!r}{said}", error.ctx
                ) from error
            raise
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)


def _fail(ctx: click.Context, message: str, status: int) -> None:
    click.echo("Error: " + printable(message, keep="\n\t"), err=True)
    ctx.exit(status)


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
    Shell completion of verbs and options:
      eval "$(_AUTOML_COMPLETE=bash_source automl)"    bash; likewise zsh_source
      _AUTOML_COMPLETE=fish_source automl | source     fish

    Exit status: 0 done, 1 failed, 2 wrong usage or configuration, 3 no trial succeeded (`ask`: no
    trial is left; `ab`: not known), 10 the trial should stop (`tell`) or B is not better
    (`ab`), 130 interrupted and resumable.
    """


def main() -> None:
    """Entry point of the program `automl`."""
    sys.exit(cli(prog_name="automl"))
