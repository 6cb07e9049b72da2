"""`automl watch SWEEP`: show the live view of a sweep that runs in another terminal."""

import time

import click

from .common import opened, store_option, sweep_or_newest


@click.command("watch", short_help="Watch a running sweep live.")
@sweep_or_newest
@store_option
@click.option(
    "--interval",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0.1),
    help="Seconds between updates.",
)
def command(sweep: str, store: str, interval: float) -> None:
    """Watch a running sweep from another terminal. Ctrl-C ends the view, not the sweep.

    \b
    Example:
      automl watch nmt
    """
    from automl.report.terminal_view import view

    with opened(store) as ledger, view() as show:
        try:
            show(snapshot := ledger.snapshot(sweep, condensed=True))
            while snapshot.state == "running":
                time.sleep(interval)
                show(snapshot := ledger.snapshot(sweep, condensed=True))
        except KeyboardInterrupt:
            return
