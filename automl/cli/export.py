"""`automl export SWEEP`: the best trial's model as a folder."""

from __future__ import annotations

from pathlib import Path

import click

from .common import emit, json_option, opened, store_option, sweep_argument


@click.command("export", short_help="Write the best model with its configuration and a card.")
@sweep_argument
@store_option
@click.option("--output", "-o", metavar="DIR", help="A new folder.  [default: SWEEP-model]")
@click.option("--trial", type=int, metavar="N", help="Another trial than the best.")
@json_option
def command(sweep: str, store: str, output: str | None, trial: int | None, as_json: bool) -> None:
    """Write what the best trial has trained: weights, configuration and a model card.

    \b
    Examples:
      automl export nmt
      automl export nmt --trial 7 -o models/seven
    """
    from automl.workflows.export import chosen, export

    target = Path(output or f"{sweep}-model")
    with opened(store) as ledger:
        found = chosen(ledger, sweep, trial)
        files = export(ledger, sweep, found, target)
    show(found.number, target, files, as_json)


def show(number: int, target: Path, files: dict[str, str], as_json: bool) -> None:
    """Say what was written."""
    if as_json:
        emit({"trial": number, "folder": str(target), "files": files})
        return
    click.echo(f"trial {number} is in {target}:")
    width = max(map(len, files))
    for name, what in files.items():
        click.echo(f"  {name:<{width}}  {what}")
