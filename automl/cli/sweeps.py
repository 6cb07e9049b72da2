"""`automl list`: list the sweeps of a store."""

import dataclasses
import time

import click

from .common import emit, json_option, opened, say, store_option


@click.command("list", short_help="List the sweeps of a store.")
@store_option
@json_option
def command(store: str, as_json: bool) -> None:
    """List the sweeps of a store, the newest one last.

    \b
    Examples:
      automl list
      automl list --store postgresql://host/runs --json
    """
    with opened(store) as ledger:
        sweeps = ledger.sweeps()
    if as_json:
        emit([dataclasses.asdict(info) for info in sweeps])
        return
    from automl.core.text import duration
    from automl.report.console import console, table

    rows = [
        [
            info.name,
            info.state,
            str(info.num_trials),
            duration(info.seconds),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(info.created)),
        ]
        for info in sweeps
    ]
    if rows:
        console().print(
            table(["sweep", "state", "trials", "time", "created"], rows, right=["trials", "time"])
        )
    else:
        say("no sweeps yet; start one with: automl sweep CONFIG")
