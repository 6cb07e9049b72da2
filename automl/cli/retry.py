"""`automl retry SWEEP --trial N`: try the configuration of a finished trial again."""

import click

from .common import opened, say, store_option, sweep_argument


@click.command("retry", short_help="Try the configuration of a finished trial again.")
@sweep_argument
@click.option(
    "--trial", type=click.IntRange(min=0), required=True, metavar="N", help="Number of the trial."
)
@store_option
def command(sweep: str, trial: int, store: str) -> None:
    """Try the configuration of a finished trial again, as a new trial.

    \b
    Example:
      automl retry nmt --trial 12
    """
    from automl.workflows import steering

    with opened(store, write=True) as ledger:
        say(steering.retry_trial(ledger, sweep, trial))
