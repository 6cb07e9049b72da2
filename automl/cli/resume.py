"""`automl resume SWEEP`: go on with an interrupted sweep."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from automl.core.goals import parse_duration
from automl.errors import UsageError

from .common import json_option, opened, store_option, sweep_argument
from .objective import load_objective, objective_option
from .running import ray_options, run_sweep

if TYPE_CHECKING:
    from automl.core.spec import SweepSpec


@click.command("resume", short_help="Go on with an interrupted sweep.")
@sweep_argument
@store_option
@click.option("--trials", metavar="N", help="End after so many trials, earlier ones counted in.")
@click.option(
    "--budget",
    metavar="TIME",
    help="End after so much time, earlier runs counted in, such as 1h30m.",
)
@json_option
@objective_option
@ray_options
@click.pass_context
def command(ctx: click.Context, /, sweep: str, store: str, **options: Any) -> None:
    """Go on with a sweep that was interrupted, on the budget that it has left.

    Finished trials stay as they are; interrupted ones go on from their newest checkpoint.

    \b
    Examples:
      automl resume nmt
      automl resume nmt --trials 60 --budget 1h
      automl resume mine --objective train.py:objective
    """
    with opened(store, write=True) as ledger:
        spec = _with_budget(ledger.spec(sweep), options["trials"], options["budget"])
        if ledger.snapshot(sweep).state == "finished" and spec.budget == ledger.spec(sweep).budget:
            click.echo(f"{sweep} is finished; to go on, raise its --trials or --budget", err=True)
            return
        check_runnable(spec, options["objective"])
        objective = load_objective(options["objective"]) if options["objective"] else None
        where = {key: options[key] for key in ("dispatcher", "ray_address", "as_json")}
        status = run_sweep(spec, ledger, store, objective=objective, resume=True, **where)
    ctx.exit(status)


def _with_budget(spec: SweepSpec, trials: str | None, time: str | None) -> SweepSpec:
    """The sweep with what was given of a new budget."""
    budget = spec.budget
    if trials is not None:
        if not (trials.isascii() and trials.isdigit() and int(trials) > 0):
            raise UsageError(f"--trials: a whole number of at least 1 is needed, got {trials!r}")
        budget = replace(budget, trials=int(trials))
    if time is not None:
        budget = replace(budget, time=parse_duration(time))
    return replace(spec, budget=budget)


def check_runnable(spec: SweepSpec, objective: str | None) -> None:
    """Raise UsageError or DataError where what the sweep needs is not there any more."""
    if spec.workload is None and objective is None:
        raise UsageError(
            f"sweep {spec.name} tunes a function of your own: name it with --objective FILE:NAME"
        )
    if spec.workload is not None:
        from workers.workloads import WORKLOADS

        if objective is not None:
            raise UsageError(
                f"sweep {spec.name} tunes the workload {spec.workload}: leave --objective out"
            )
        WORKLOADS.get(spec.workload).check(spec.data, spec.fixed)
