"""`automl status SWEEP`: show the progress of a sweep."""

import click

from automl.core import Noted, Snapshot, TrialState

from .common import emit, json_option, opened, say, store_option, sweep_or_newest, trial_object


@click.command("status", short_help="Show the progress of a sweep.")
@sweep_or_newest
@store_option
@json_option
def command(sweep: str, store: str, as_json: bool) -> None:
    """Show the progress of a sweep, also while it runs.

    \b
    Examples:
      automl status nmt
      automl status nmt --json
    """
    with opened(store) as ledger:
        snapshot = ledger.snapshot(sweep, condensed=True)
        changed = snapshot.spec is not None and snapshot.spec.explored is not None
        events = list(ledger.events(sweep)) if changed else []
    changes = [e.message for e in events if isinstance(e, Noted) and e.kind == "space"]
    if as_json:
        emit(status_object(snapshot))
        return
    from automl.report.console import console
    from automl.report.terminal_view import SweepView

    console(width=100).print(SweepView(snapshot, height=24))
    for message in changes:
        say(f"the space was changed: {message}")


def status_object(snapshot: Snapshot) -> dict[str, object]:
    """The JSON object of `automl status`."""
    best = snapshot.best
    return {
        "sweep": snapshot.sweep,
        "state": snapshot.state,
        "num_trials": len(snapshot.trials),
        "num_completed": len(snapshot.in_state(TrialState.COMPLETED)),
        "num_failed": len(snapshot.in_state(TrialState.FAILED)),
        "best": trial_object(snapshot, best) if best else None,
        "seconds": snapshot.seconds,
        "workers": snapshot.num_slots,
    }
