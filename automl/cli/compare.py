"""`automl compare SWEEP SWEEP ...`: compare sweeps."""

import click

from automl.core import Snapshot, TrialState
from automl.errors import UsageError

from .common import emit, json_option, opened, store_option
from .status import status_object


@click.command("compare", short_help="Compare sweeps.")
@click.argument("sweeps", nargs=-1, required=True, metavar="SWEEP SWEEP...")
@store_option
@json_option
def command(sweeps: tuple[str, ...], store: str, as_json: bool) -> None:
    """Compare sweeps with the same first goal: best value, number of trials and time.

    \b
    Example:
      automl compare nmt nmt-2
    """
    if len(sweeps) < 2:
        raise UsageError(f"compare needs at least two sweeps, got {len(sweeps)}")
    with opened(store) as ledger:
        snapshots = [ledger.snapshot(sweep) for sweep in sweeps]
    goals = {snapshot.goals[0] for snapshot in snapshots}
    if len(goals) > 1:
        found = "; ".join(f"{snapshot.sweep}: {snapshot.goals[0]}" for snapshot in snapshots)
        raise UsageError(f"only sweeps with the same first goal can be compared, got {found}")
    if as_json:
        emit([status_object(snapshot) for snapshot in snapshots])
        return
    _print(snapshots)


def _print(snapshots: list[Snapshot]) -> None:
    from automl.core.text import configuration, duration, goal_value, number
    from automl.report.console import console, table

    rows = []
    for snapshot in snapshots:
        best = snapshot.best
        value = goal_value(best, snapshot) if best else None
        failed = len(snapshot.in_state(TrialState.FAILED))
        counts = [str(len(snapshot.trials)), str(failed), duration(snapshot.seconds)]
        reached = "-" if value is None else number(value)
        rows.append(
            [
                snapshot.sweep,
                snapshot.state,
                reached,
                *counts,
                configuration(best.params) if best else "-",
            ]
        )
    goal = snapshots[0].goals[0].metric
    columns = ["sweep", "state", goal, "trials", "failed", "time", "best configuration"]
    console().print(table(columns, rows, right=[goal, "trials", "failed", "time"]))
