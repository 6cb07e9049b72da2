"""`automl stop SWEEP`: stop a running sweep, or one trial."""

import click

from .common import opened, say, store_option, sweep_argument


@click.command("stop", short_help="Stop a running sweep, or one trial.")
@sweep_argument
@click.option(
    "--trial",
    type=click.IntRange(min=0),
    metavar="N",
    help="Stop only this trial; the sweep goes on.",
)
@store_option
def command(sweep: str, trial: int | None, store: str) -> None:
    """Ask a running sweep to stop. Its trials stop at their next report, and their results count.

    To interrupt a sweep and continue it later, press Ctrl-C in its own terminal instead.

    \b
    Examples:
      automl stop nmt
      automl stop nmt --trial 12
    """
    from automl.workflows import steering

    with opened(store, write=True) as ledger:
        if trial is None:
            say(steering.stop_sweep(ledger, sweep))
        else:
            say(steering.stop_trial(ledger, sweep, trial))
