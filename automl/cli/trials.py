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
    from automl.core.text import configurations, duration, goal_value, memory, number, state_of
    from automl.report.console import console, table

    goals = [goal.metric for goal in snapshot.goals]
    rows = []
    best = snapshot.best
    lines = configurations([trial.params for trial in snapshot.trials])
    for trial, line in zip(snapshot.trials, lines, strict=True):
        values = [goal_value(trial, snapshot, index) for index in range(len(goals))]
        mark = "*" if best and trial.number == best.number else " "
        cells = ["-" if value is None else number(value) for value in values]
        measured = [duration(trial.seconds), memory(trial.peak_memory_bytes)]
        rows.append([f"{trial.number}{mark}", state_of(trial, snapshot), *cells, *measured, line])
    columns = ["trial", "state", *goals, "time", "memory", "configuration"]
    console().print(table(columns, rows, right=["trial", *goals, "time", "memory"]))
    if best:
        console().print(f"* the best by {snapshot.goals[0]}", style="dim")
