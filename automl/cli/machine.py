"""The verbs about this machine and what is installed on it: doctor, workloads, data sets."""

from pathlib import Path

import click

from automl.errors import UsageError
from automl.workflows.doctor import examine
from workers.data.fetch import DATASETS
from workers.data.fetch import fetch as fetch_files
from workers.workloads import WORKLOADS

from .common import draw, draw_table, emit, json_option, say, store_option


@click.command()
@store_option
@json_option
def doctor(store: str, as_json: bool) -> None:
    """Show hardware, packages and backends, and what precisions and strategies need.

    \b
    Example:
      automl doctor
    """
    findings = examine(store)
    return emit(findings.to_dict()) if as_json else draw(findings.render())


@click.command()
@click.option("--fetch", metavar="NAME", help="Data set to fetch.")
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@json_option
def workloads(fetch: str | None, folder: Path | None, as_json: bool) -> None:
    """List the workloads with their goals, and the data sets that --fetch can get.

    A data set is fetched from its official source. Its checksum is checked.

    \b
    Examples:
      automl workloads
      automl workloads --fetch imdb data/imdb
    """
    if fetch is not None:
        return _fetch(fetch, folder or Path("data") / fetch, as_json)
    if folder is not None:
        raise UsageError(f"{folder} is the folder of a data set: name the set with --fetch NAME")
    known = [WORKLOADS.get(name) for name in WORKLOADS.names()]
    if as_json:
        objects = [{"name": w.name, "summary": w.summary, "goals": list(w.goals)} for w in known]
        return emit(objects)
    rows = [[w.name, ", ".join(w.goals), w.summary] for w in known]
    draw_table(["workload", "goals", "summary"], rows)
    rows = [[name, dataset.summary, dataset.use] for name, dataset in DATASETS.items()]
    return draw_table(["data set", "what it is", "for"], rows)


def _fetch(name: str, target: Path, as_json: bool) -> None:
    """Fetch a data set."""
    announced = [-1]

    def progress(file: str, done: int, total: int) -> None:
        step = done * 10 // total if total else done >> 24
        if step != announced[0] and not as_json:
            announced[0] = step
            of_total = f" of {total / 1e6:.1f}" if total else ""
            say(f"{file}: {done / 1e6:.1f} MB{of_total}", err=True)

    files = fetch_files(name, target, progress)
    if as_json:
        return emit({"name": name, "dir": str(target), "files": [str(path) for path in files]})
    return say(f"{name} is in {target}: {', '.join(path.name for path in files)}")
