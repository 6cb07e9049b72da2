"""`automl stop SWEEP`: stop a running sweep."""

import click

from .common import opened, say, store_option, sweep_argument


@click.command("stop", short_help="Stop a running sweep.")
@sweep_argument
@store_option
def command(sweep: str, store: str) -> None:
    """Ask a running sweep to stop. Its trials stop at their next report, and their results count.

    To interrupt a sweep and continue it later, press Ctrl-C in its own terminal instead.

    \b
    Example:
      automl stop nmt
    """
    with opened(store, write=True) as ledger:
        state = ledger.snapshot(sweep).state
        if state == "running":
            ledger.request_stop(sweep)
            say(f"asked {sweep} to stop; see automl status {sweep}")
        else:
            say(f"{sweep} is not running, it is {state}")
