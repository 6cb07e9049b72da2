"""`automl budget SWEEP`: raise the budget of a sweep, also while it runs."""

from typing import Any

import click

from automl.core import parse_duration
from automl.errors import UsageError

from .common import budget_options, opened, say, store_option, sweep_argument


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

    limits: dict[str, Any] = {}
    if trials is not None:
        if not (trials.isascii() and trials.isdigit() and int(trials) > 0):
            raise UsageError(f"--trials: a whole number of at least 1 is needed, got {trials!r}")
        limits["trials"] = int(trials)
    if budget is not None:
        limits["time"] = parse_duration(budget)
    with opened(store, write=True) as ledger:
        say(steering.set_budget(ledger, sweep, limits))
