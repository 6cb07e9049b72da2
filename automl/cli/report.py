"""`automl report SWEEP`: write the report of a sweep as an HTML file."""

from pathlib import Path

import click

from .common import opened, output_option, say, store_option, sweep_or_newest


@click.command("report", short_help="Write the report of a sweep as an HTML file.")
@sweep_or_newest
@store_option
@output_option("SWEEP.html", "FILE", "File to write.")
@click.option(
    "--ax", is_flag=True, help="Add Ax's plots of pairs of parameters; takes tens of seconds."
)
def command(sweep: str, store: str, output: str | None, ax: bool) -> None:
    """Write the report of a sweep as one HTML file that works offline, also while the sweep runs.

    \b
    Examples:
      automl report nmt
      automl report nmt -o /tmp/nmt.html
      automl report nmt --ax
    """
    from automl.report.page import save
    from automl.report.record import Record

    with opened(store) as ledger:
        record = Record.read(ledger, sweep)
    path = Path(output or f"{sweep}.html")
    save(record, path, ax=ax)
    say(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)")
