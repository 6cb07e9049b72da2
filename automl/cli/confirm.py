"""`automl confirm SWEEP`: train the best configurations again, under other seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from automl.errors import AutomlError

from .common import (
    artifacts_option,
    emit,
    json_option,
    objective_option,
    opened,
    ray_options,
    store_option,
    sweep_argument,
)
from .program import Program, ProgramVerb, load_trained, shell_option
from .running import check_runnable, run_sweep

if TYPE_CHECKING:
    from automl.report.confirmations import Confirmation

AT_LEAST_2 = click.IntRange(2)


@click.command(
    "confirm",
    cls=ProgramVerb,
    short_help="Train the best again: is their lead more than noise?",
)
@sweep_argument
@store_option
@click.option(
    "--seeds", default=3, show_default=True, type=AT_LEAST_2, help="Runs of each configuration."
)
@click.option(
    "--top", default=3, show_default=True, type=AT_LEAST_2, help="Number of configurations."
)
@json_option
@objective_option
@shell_option
@artifacts_option
@ray_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    sweep: str,
    store: str,
    seeds: int,
    top: int,
    objective: str | None,
    program: Program | None,
    artifacts: str | None,
    **options: Any,
) -> None:
    """Train the best configurations again with other seeds, to see whether the lead is noise.

    The runs are kept as the sweep SWEEP.confirm. `best` and `report` then show the result. If you
    run it again, only missing runs are trained.

    \b
    Examples:
      automl confirm nmt
      automl confirm nmt --seeds 5 --top 2
      automl confirm mine -- python train.py --lr={lr}
    """
    from automl.report import confirmations
    from automl.workflows.artifacts import moved_to
    from automl.workflows.confirm import missing
    from automl.workflows.retrain import derived, prepare

    with opened(store, write=True) as ledger:
        spec, snapshot = ledger.spec(sweep), ledger.snapshot(sweep)
        chosen = confirmations.candidates(snapshot, spec.known_space, top)
        if not chosen:
            raise AutomlError(f"no trial of {sweep} has succeeded: there is nothing to confirm")
        runs = missing(ledger, sweep, chosen, seeds)
        if runs:
            check_runnable(spec, objective, program, "confirm")
            function = load_trained(spec, objective, program)
            again = moved_to(derived(spec, confirmations.KIND, len(runs)), artifacts)
            again = prepare(ledger, again, [trial.params for trial in runs])
            if status := run_sweep(
                again, ledger, store, function, summary=False, resume=True, **options
            ):
                ctx.exit(status)
        found = confirmations.read(ledger, sweep)
    if found is None:
        raise AutomlError(f"the best trial of {sweep} has changed meanwhile: confirm it again")
    emit({"sweep": sweep, **found.to_dict()}) if options["as_json"] else _print(found)


def _print(found: Confirmation) -> None:
    from automl.core.text import number
    from automl.report.console import console, table

    rows = [
        [
            str(runs.trial),
            number(runs.mean),
            number(runs.deviation),
            str(runs.failed),
            "  ".join(map(number, runs.values)),
        ]
        for runs in found.repeats
    ]
    columns = ["trial", "mean", "deviation", "failed", "runs"]
    console().print(table(columns, rows, right=columns[:4]))
    console().print(f"\n{found}")
