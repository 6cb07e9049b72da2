"""`automl workloads`: list the workloads."""

import click

from .common import emit, json_option


@click.command("workloads", short_help="List the workloads.")
@json_option
def command(as_json: bool) -> None:
    """List the workloads with their goals.

    \b
    Example:
      automl workloads
    """
    from workers.workloads import WORKLOADS

    found = [WORKLOADS.get(name) for name in WORKLOADS.names()]
    objects = [{"name": w.name, "summary": w.summary, "goals": list(w.goals)} for w in found]
    if as_json:
        emit(objects)
        return
    from automl.report.console import console, table

    rows = [[w.name, ", ".join(w.goals), w.summary] for w in found]
    console().print(table(["workload", "goals", "summary"], rows))
