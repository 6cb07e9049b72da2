"""`automl confirm SWEEP`: train the best configurations again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from automl.core.text import Typed
from automl.errors import AutomlError, UsageError
from automl.workflows.confirm import derived, prepare
from automl.workflows.export import moved_to

from .common import (
    dispatching,
    draw,
    draw_table,
    emit,
    json_option,
    objective_option,
    opened,
    setting,
    store_option,
    sweep_argument,
    whole,
)
from .program import Program, ProgramVerb, checked, load_trained, named
from .running import check_runnable, dispatcher_of, run_sweep

if TYPE_CHECKING:
    from automl.report.confirmations import Confirmation


@click.command(cls=ProgramVerb)
@sweep_argument
@store_option
@click.option(
    "--seeds", type=whole(2), default=3, show_default=True, help="Runs of each configuration."
)
@click.option(
    "--top", type=whole(2), default=3, show_default=True, help="Number of configurations."
)
@click.option(
    "--probability",
    type=float,
    metavar="P",
    help="Add runs until the best is known with this probability.",
)
@click.option(
    "--runs",
    "most",
    type=whole(2),
    default=60,
    show_default=True,
    help="Most runs in all, with --probability.",
)
@json_option
@objective_option
@setting("artifacts")
@dispatching("as before")
def confirm(
    sweep: str,
    store: str,
    seeds: int,
    top: int,
    probability: float | None,
    most: int,
    objective: str | None,
    program: Program | None,
    artifacts: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Train the best configurations again with other seeds, to see whether the lead is noise.

    They are the recommended one, the next ones and the best single trial. With --probability runs
    are added, where they tell most, until the best is known with it.

    The runs are kept as the sweep SWEEP.confirm. `best` and `report` then show the result. If you
    run it again, only missing runs are trained.

    \b
    Examples:
      automl confirm nmt
      automl confirm nmt --seeds 5 --top 2
      automl confirm nmt --probability 0.9 --runs 30
      automl confirm mine -- python train.py --lr={lr}
    """
    from automl.report import confirmations
    from automl.workflows.confirm import chosen, missing, next_runs

    if probability is not None and not 0 < probability < 1:
        raise UsageError(f"--probability must be more than 0 and less than 1, got {probability:g}")
    with opened(store, write=True) as ledger:
        spec, snapshot = checked(ledger.spec(sweep)), ledger.snapshot(sweep)
        configurations = chosen(snapshot, spec.known_space, top)
        if not configurations:
            raise AutomlError(f"no trial of {sweep} has succeeded: there is nothing to confirm")
        runs = missing(ledger, sweep, configurations, seeds)
        if runs or probability is not None:
            typed = Typed(store, objective, options["ray_address"])
            objective, program, _ = named(spec, objective, program)
            typed = replace(typed, objective=objective)
            check_runnable(spec, typed, program, "confirm")
            function = load_trained(spec, objective, program)
            options |= {"summary": False, "resume": True, "as_json": as_json}
            options["dispatcher"] = dispatcher_of(spec, options["dispatcher"], agents=False)
        confirmation, counted = None, -1
        while True:
            if runs:
                again = moved_to(derived(spec, confirmations.KIND, len(runs)), artifacts)
                again = prepare(ledger, again, [trial.params for trial in runs])
                if status := run_sweep(again, ledger, typed, function, **options):
                    return status
            confirmation = confirmations.read(ledger, ledger.snapshot(sweep))
            if confirmation is None or probability is None:
                break
            goes_on = counted < confirmation.num_runs < most  # not if a run has no value
            if confirmation.probability >= probability or not goes_on:
                break
            counted = confirmation.num_runs
            runs = next_runs(confirmation, configurations)
    if confirmation is None:
        raise AutomlError(f"the best trial of {sweep} has changed meanwhile: confirm it again")
    if as_json:
        emit({"sweep": sweep, **confirmation.to_dict()})
    else:
        _print(confirmation)
    return 0


def _print(confirmation: Confirmation) -> None:
    from automl.core.text import number

    rows = [
        [
            str(runs.trial),
            number(runs.mean),
            number(runs.deviation),
            str(runs.failed),
            "  ".join(map(number, runs.values)),
        ]
        for runs in confirmation.repeats
    ]
    columns = ["trial", "mean", "deviation", "failed", "runs"]
    draw_table(columns, rows, columns[:4])
    draw(f"\n{confirmation}")
