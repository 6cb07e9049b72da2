"""`automl export SWEEP`: write the model of the best trial as a folder."""

from pathlib import Path

import click

from .common import (
    artifacts_option,
    emit,
    json_option,
    opened,
    output_option,
    say,
    store_option,
    sweep_or_newest,
    trial_option,
)


@click.command("export", short_help="Write the best model, its configuration and a model card.")
@sweep_or_newest
@store_option
@output_option("SWEEP-model")
@trial_option
@artifacts_option
@json_option
def command(
    sweep: str,
    store: str,
    output: str | None,
    trial: int | None,
    artifacts: str | None,
    as_json: bool,
) -> None:
    """Write the model of the best trial: weights, configuration and a model card.

    \b
    Examples:
      automl export nmt
      automl export nmt --trial 7 -o models/seven
      automl export nmt --artifacts s3://bucket/sweeps      fetch it from there, keep a copy there
    """
    from automl.workflows.export import chosen, export

    target = Path(output or f"{sweep}-model")
    with opened(store) as ledger:
        found = chosen(ledger, sweep, trial)
        files = export(ledger, sweep, found, target, artifacts)
    show(found.number, target, files, as_json)


def show(number: int, target: Path, files: dict[str, str], as_json: bool) -> None:
    """Print the files of an exported trial."""
    if as_json:
        emit({"trial": number, "folder": str(target), "files": files})
        return
    say(f"trial {number} is in {target}:")
    width = max(map(len, files))
    for name, description in files.items():
        say(f"  {name:<{width}}  {description}")
