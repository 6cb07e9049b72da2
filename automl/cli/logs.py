"""`automl logs SWEEP TRIAL`: show the output of a trial."""

import re

import click

from automl.core.text import printable
from automl.errors import UsageError
from workers.protocol import LOGS, log_name

from .common import newest_sweep, opened, store_option, sweep_or_newest

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@click.command("logs", short_help="Show the output of a trial.")
@sweep_or_newest
@click.argument("trial", type=click.IntRange(0), required=False)
@click.option(
    "--rank",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    help="Rank of a trial that has several.",
)
@click.option(
    "--attempt",
    type=click.IntRange(1),
    help="Attempt of a trial that was retried.  [default: the last]",
)
@store_option
def command(sweep: str, trial: int | None, rank: int, attempt: int | None, store: str) -> None:
    """Show what one rank of a trial has printed, and the traceback if it raised an exception.

    A trial that ran inline has printed to the terminal of its sweep.

    Colours are left out, and other control characters are escaped.

    \b
    Examples:
      automl logs nmt 7
      automl logs nmt 7 --rank 1
      automl logs 7                 of the newest sweep
    """
    if trial is None:
        if not sweep.isdecimal():
            raise UsageError(f"which trial of {sweep}? such as: automl logs {sweep} 0")
        trial = int(sweep)
        sweep = newest_sweep(store)
    with opened(store) as ledger:
        trials = ledger.trials(sweep)
        logs = ledger.files(sweep) / "trials" / str(trial) / LOGS
    if trial >= len(trials):
        raise UsageError(
            f"{sweep} has {len(trials)} trials, counted from 0; there is no trial {trial}"
        )
    attempts = max(trials[trial].attempts, 1)
    name = log_name(attempt or attempts, rank)
    traceback = trials[trial].traceback if attempt is None or attempt == attempts else ""
    try:
        with logs.open(name, "r", encoding="utf-8", errors="replace") as file:
            for line in file:
                click.echo(printable(_COLOURS.sub("", line), keep="\n\t"), nl=False)
    except FileNotFoundError as error:
        if not traceback:
            names = ", ".join(found for found in logs.names() if found.endswith(".log"))
            hint = f"there are {names}" if names else "it may have run inline or on another machine"
            raise UsageError(f"trial {trial} has no log at {logs.path / name}; {hint}") from error
    click.echo(printable(traceback, keep="\n\t"), nl=False)
