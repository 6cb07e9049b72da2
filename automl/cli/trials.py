"""`automl trials SWEEP`: list the trials of a sweep."""

import click

from automl.core import Snapshot

from .common import emit, json_option, opened, store_option, sweep_or_newest


@click.command("trials", short_help="List the trials of a sweep.")
@sweep_or_newest
@store_option
@json_option
def command(sweep: str, store: str, as_json: bool) -> None:
    """List the trials of a sweep with their configurations and metrics.

    \b
    Examples:
      automl trials nmt
      automl trials nmt --json | jq '.[] | select(.failure)'
    """
    with opened(store) as ledger:
        snapshot = ledger.snapshot(sweep)
    if as_json:
        emit([trial.summary() for trial in snapshot.trials])
    else:
        _print(snapshot)


def _print(snapshot: Snapshot) -> None:
    from automl.core.text import configuration, duration, goal_value, memory, number
    from automl.report.console import console, table

    goals = [goal.metric for goal in snapshot.goals]
    rows = []
    best = snapshot.best
    for trial in snapshot.trials:
        values = [goal_value(trial, snapshot, index) for index in range(len(goals))]
        mark = "*" if best and trial.number == best.number else " "
        state = str(trial.state) if trial.failure is None else trial.failure.replace("_", " ")
        cells = ["-" if value is None else number(value) for value in values]
        measured = [duration(trial.seconds), memory(trial.peak_memory_bytes)]
        rows.append(
            [f"{trial.number}{mark}", state, *cells, *measured, configuration(trial.params)]
        )
    columns = ["trial", "state", *goals, "time", "memory", "configuration"]
    console().print(table(columns, rows, right=["trial", *goals, "time", "memory"]))
    if best:
        console().print(f"* the best by {snapshot.goals[0]}", style="dim")
