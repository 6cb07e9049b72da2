"""`automl data`: the public data sets that workloads read."""

from __future__ import annotations

from pathlib import Path

import click

from .common import emit, json_option


@click.group("data", short_help="List and fetch public data sets.")
def command() -> None:
    """List and fetch public data sets.

    \b
    Examples:
      automl data list
      automl data fetch imdb
    """


@command.command("list", short_help="List the data sets that can be fetched.")
@json_option
def listing(as_json: bool) -> None:
    """List the data sets that can be fetched, and the settings that read them.

    \b
    Example:
      automl data list --json
    """
    from workers.datasets import DATASETS

    if as_json:
        emit([{"name": name, "summary": d.summary, "use": d.use} for name, d in DATASETS.items()])
        return
    from automl.report.console import console, table

    rows = [[name, dataset.summary, dataset.use] for name, dataset in DATASETS.items()]
    console().print(table(["name", "what it is", "for"], rows))


@command.command("fetch", short_help="Fetch a data set from its official source.")
@click.argument("name")
@click.option("--dir", "folder", type=click.Path(path_type=Path), help="Where to; by default data/NAME.")
@json_option
def fetching(name: str, folder: Path | None, as_json: bool) -> None:
    """Fetch a data set from its official source; checked by its checksum, and resumed after a broken transfer.

    \b
    Example:
      automl data fetch imdb
      automl sweep configs/sentiment.yaml data.name=imdb data.dir=data/imdb
    """
    from workers.fetch import fetch

    target = folder or Path("data") / name
    shown = [-1]

    def progress(file: str, done: int, total: int) -> None:
        step = done * 10 // total if total else done >> 24
        if step != shown[0] and not as_json:
            shown[0] = step
            click.echo(f"{file}: {done / 1e6:.1f} MB" + (f" of {total / 1e6:.1f}" if total else ""), err=True)

    files = fetch(name, target, progress)
    if as_json:
        emit({"name": name, "dir": str(target), "files": [str(path) for path in files]})
    else:
        click.echo(f"{name} is in {target}: {', '.join(path.name for path in files)}")
