"""`automl pause SWEEP --trial N`: pause a running trial."""

import click

from .common import opened, say, store_option, sweep_argument


@click.command("pause", short_help="Pause a running trial.")
@sweep_argument
@click.option(
    "--trial", type=click.IntRange(min=0), required=True, metavar="N", help="Number of the trial."
)
@store_option
def command(sweep: str, trial: int, store: str) -> None:
    """Pause a trial at its next report. It goes on after `automl resume SWEEP --trial N`.

    Only a trial that goes on from a checkpoint can pause. Ctrl-C pauses the whole sweep.

    \b
    Example:
      automl pause nmt --trial 12
    """
    from automl.workflows import steering

    with opened(store, write=True) as ledger:
        say(steering.pause_trial(ledger, sweep, trial))
