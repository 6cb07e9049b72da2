"""`automl delete SWEEP`: delete a sweep."""

import click

from .common import opened, say, store_option, sweep_argument


@click.command("delete", short_help="Delete a sweep and its files.")
@sweep_argument
@store_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def command(sweep: str, store: str, yes: bool) -> None:
    """Delete a sweep with its trials, checkpoints and logs. A running sweep is refused.

    \b
    Example:
      automl delete nmt-2
    """
    with opened(store, write=True) as ledger:
        num_trials = len(ledger.trials(sweep))
        if not yes:
            click.confirm(
                f"delete {sweep} with {num_trials} trials and their files?", abort=True, err=True
            )
        ledger.delete(sweep)
        say(f"deleted {sweep}")
