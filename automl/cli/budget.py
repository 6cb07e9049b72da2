"""`automl budget SWEEP`: raise the budget of a sweep, also while it runs."""

import click

from .common import budget_options, given_limits, opened, say, store_option, sweep_argument


@click.command("budget", short_help="Raise the budget of a sweep, also while it runs.")
@sweep_argument
@budget_options
@store_option
def command(sweep: str, trials: str | None, budget: str | None, store: str) -> None:
    """Raise the budget of a sweep, also while it runs. Limits that are not named stay.

    \b
    Examples:
      automl budget nmt --trials 60
      automl budget nmt --budget 3h
    """
    from automl.workflows import steering

    limits = given_limits(trials, budget)
    with opened(store, write=True) as ledger:
        say(steering.set_budget(ledger, sweep, limits))
