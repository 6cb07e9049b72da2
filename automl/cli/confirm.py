"""`automl confirm SWEEP`: train the best configurations again, to see whether the lead of the best is real."""

from __future__ import annotations

from typing import Any

import click

from automl.errors import AutomlError

from .common import emit, json_option, opened, store_option, sweep_argument
from .objective import load_objective, objective_option
from .resume import check_runnable
from .running import ray_options, run_quietly


@click.command("confirm", short_help="Train the best again: is their lead more than noise?")
@sweep_argument
@store_option
@click.option(
    "--seeds",
    default=3,
    show_default=True,
    type=click.IntRange(2),
    help="Runs of each configuration.",
)
@click.option(
    "--top", default=3, show_default=True, type=click.IntRange(2), help="How many of the best."
)
@json_option
@objective_option
@ray_options
@click.pass_context
def command(
    ctx: click.Context, /, sweep: str, store: str, seeds: int, top: int, as_json: bool, **where: Any
) -> None:
    """Train the best configurations again under other seeds, and say whether the winner's lead exceeds the noise.

    The runs are kept as the sweep SWEEP.confirm; `best` and `report` tell their result from then on. Typed again, only
    what is missing is trained.

    \b
    Examples:
      automl confirm nmt
      automl confirm nmt --seeds 5 --top 2
    """
    from automl.report import confirmations
    from automl.workflows.confirm import missing
    from automl.workflows.retrain import derived, prepare

    target = where.pop("objective")
    with opened(store, write=True) as ledger:
        spec, snapshot = ledger.spec(sweep), ledger.snapshot(sweep)
        chosen = confirmations.candidates(snapshot, spec.space, top)
        if not chosen:
            raise AutomlError(f"no trial of {sweep} has succeeded: there is nothing to confirm")
        wanted = missing(ledger, sweep, chosen, seeds)
        if wanted:
            check_runnable(spec, target)
            objective = load_objective(target) if target else None
            again = prepare(
                ledger,
                derived(spec, confirmations.KIND, len(wanted)),
                [trial.params for trial in wanted],
            )
            if status := run_quietly(again, ledger, store, objective, as_json, **where):
                ctx.exit(status)
        found = confirmations.read(ledger, sweep)
    if found is None:
        raise AutomlError(f"the best of {sweep} has changed meanwhile: confirm it again")
    emit({"sweep": sweep, **found.to_dict()}) if as_json else _print(found)


def _print(found: Any) -> None:
    from automl.core.text import number
    from automl.report.console import console, table

    rows = [
        [
            str(r.trial),
            number(r.mean),
            number(r.deviation),
            str(r.failed),
            "  ".join(map(number, r.values)),
        ]
        for r in found.repeats
    ]
    columns = ["trial", "mean", "deviation", "failed", "runs"]
    console().print(table(columns, rows, right=columns[:4]))
    console().print(f"\n{found}")
