"""`automl stop SWEEP`: end a running sweep politely."""

from __future__ import annotations

import click

from .common import opened, store_option, sweep_argument


@click.command("stop", short_help="End a running sweep politely.")
@sweep_argument
@store_option
def command(sweep: str, store: str) -> None:
    """Ask a running sweep to end: its trials stop at their next report, and what they reached counts.

    To interrupt a sweep and go on later, press Ctrl-C in its own terminal instead.

    \b
    Example:
      automl stop nmt
    """
    with opened(store, write=True) as ledger:
        state = ledger.snapshot(sweep).state
        if state == "running":
            ledger.request_stop(sweep)
            click.echo(f"asked {sweep} to stop; see automl status {sweep}")
        else:
            click.echo(f"{sweep} is not running, it is {state}")
