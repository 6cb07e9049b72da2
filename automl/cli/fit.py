"""`automl fit SWEEP`: the best configuration trained to its full length on all data, and exported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from automl.core.goals import parse_duration
from automl.core.names import companion
from automl.errors import UsageError

from .common import opened, store_option, sweep_argument
from .export import show
from .objective import load_objective, objective_option
from .resume import check_runnable
from .running import ray_options, run_quietly

if TYPE_CHECKING:
    from automl.core.spec import SweepSpec

KIND = "fit"


@click.command("fit", short_help="Train the best configuration on all data, and export it.")
@sweep_argument
@store_option
@click.option("--output", "-o", metavar="DIR", help="A new folder.  [default: SWEEP-fit]")
@click.option("--trial", type=int, metavar="N", help="Another configuration than the best.")
@click.option(
    "--train-time",
    metavar="TIME",
    help="Train for so long, instead of as long as the sweep's trials.",
)
@objective_option
@ray_options
@click.pass_context
def command(ctx: click.Context, /, sweep: str, store: str, **options: Any) -> None:
    """Train the best configuration at full length on training and validation data, and export it.

    It runs as the sweep SWEEP.fit. Its metrics on the validation data say nothing then: it has seen them.

    \b
    Examples:
      automl fit nmt
      automl fit nmt --train-time 10m -o models/nmt
    """
    from automl.workflows.export import chosen, export
    from automl.workflows.retrain import prepare

    target = Path(options["output"] or f"{sweep}-fit")
    if target.exists() and any(target.iterdir()):
        raise UsageError(f"{target} is not empty; name a new folder with --output")
    with opened(store, write=True) as ledger:
        source = ledger.spec(sweep)
        check_runnable(source, options["objective"])
        objective = load_objective(options["objective"]) if options["objective"] else None
        best, spec = chosen(ledger, sweep, options["trial"]), fitted(source, options["train_time"])
        if ledger.exists(companion(sweep, KIND)):
            ledger.delete(companion(sweep, KIND))
        spec = prepare(ledger, spec, [best.params])
        where = {key: options[key] for key in ("dispatcher", "ray_address")}
        if status := run_quietly(spec, ledger, store, objective, False, **where):
            ctx.exit(status)
        files = export(ledger, spec.name, chosen(ledger, spec.name, 0), target)
    show(best.number, target, files, False)


def fitted(source: SweepSpec, train_time: str | None) -> SweepSpec:
    """The sweep of one trial: no early stopping, validation data added, another length where one is given."""
    from automl.workflows.retrain import derived

    data, goals = dict(source.data), source.goals
    if source.workload is not None:
        from workers.workloads import WORKLOADS

        if WORKLOADS.get(source.workload).trains_on_valid:
            data["with_valid"] = True
        else:
            click.echo(
                f"{source.workload} has no validation data of its own to add: only its training data",
                err=True,
            )
    if train_time is not None:
        if source.workload is None:
            raise UsageError(
                "--train-time is for workloads: an objective of your own decides itself how long it trains"
            )
        goals = tuple(replace(goal, within=parse_duration(train_time)) for goal in goals)
    return derived(source, KIND, 1, data=data, goals=goals)
