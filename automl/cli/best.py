"""`automl best SWEEP`: show the best configuration."""

import click

from automl.core.text import why_no_best
from automl.errors import AutomlError
from automl.report.confirmations import read

from . import NO_SUCCESS
from .common import best_object, emit, json_option, opened, say, store_option, sweep_or_newest


@click.command("best", short_help="Show the best configuration.")
@sweep_or_newest
@store_option
@json_option
@click.pass_context
def command(ctx: click.Context, sweep: str, store: str, as_json: bool) -> None:
    """Show the best configuration beside the default one.

    A goal compares the best report of a trial, or its last value if it ends in "at the end"
    (`value` in the JSON). `metrics` are those of its last report and of what it returned.

    \b
    Examples:
      automl best nmt
      automl best nmt --json | jq .params
    """
    with opened(store) as ledger:
        snapshot = ledger.snapshot(sweep)
        space = ledger.spec(sweep).known_space
        confirmation = read(ledger, sweep)
    best = snapshot.best
    if best is None:
        message = f"{sweep}: {why_no_best(snapshot)}"
        if snapshot.state == "running":
            raise AutomlError(f"{message}\nThe sweep still runs.")
        say(f"{message}\nSee automl trials {sweep}", err=True)
        ctx.exit(NO_SUCCESS)
    if as_json:
        found = best_object(snapshot, best)
        emit(found | {"confirmation": confirmation.to_dict()} if confirmation else found)
        return
    from automl.report.console import console
    from automl.report.summary import comparison, pareto_table

    console().print(comparison(snapshot, space))
    if len(snapshot.goals) > 1:
        console().print(pareto_table(snapshot))
    if confirmation:
        console().print(f"\n{confirmation}")
