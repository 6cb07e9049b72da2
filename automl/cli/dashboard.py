"""`automl dashboard SWEEP`: the studio, opened at one sweep."""

from typing import Any
from urllib.parse import quote

import click

from .common import opened, store_option, sweep_or_newest
from .studio import serve, serving_options


@click.command("dashboard", short_help="See one sweep in a browser.")
@sweep_or_newest
@store_option
@serving_options
def command(sweep: str, store: str, **options: Any) -> None:
    """Open the studio (`automl studio`) at a sweep. Ctrl-C ends it, not the sweep.

    \b
    Examples:
      automl dashboard nmt
      automl dashboard nmt --port 8800 --open
    """
    with opened(store) as ledger:
        ledger.spec(sweep)  # an unknown name is refused before anything is served
    serve(store, f"/sweeps/{quote(sweep, safe='')}", **options)
