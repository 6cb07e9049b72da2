"""`automl resume SWEEP`: continue an interrupted sweep."""

from dataclasses import replace
from typing import Any

import click

from automl.core import SweepSpec, parse_duration
from automl.errors import UsageError

from .common import (
    budget_options,
    json_option,
    objective_option,
    opened,
    ray_options,
    say,
    store_option,
    sweep_argument,
)
from .objective import load_objective
from .running import check_runnable, run_sweep


@click.command("resume", short_help="Continue an interrupted sweep.")
@sweep_argument
@store_option
@budget_options
@json_option
@objective_option
@ray_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    sweep: str,
    store: str,
    trials: str | None,
    budget: str | None,
    objective: str | None,
    **options: Any,
) -> None:
    """Continue an interrupted sweep with the rest of its budget, or with a larger one.

    Finished trials stay. Interrupted trials continue from their newest checkpoint.

    \b
    Examples:
      automl resume nmt
      automl resume nmt --trials 60 --budget 1h
      automl resume mine --objective train.py:objective
    """
    with opened(store, write=True) as ledger:
        spec = _with_budget(ledger.spec(sweep), trials, budget)
        if ledger.snapshot(sweep).state == "finished" and spec.budget == ledger.spec(sweep).budget:
            say(f"{sweep} is finished; to continue, raise --trials or --budget", err=True)
            return
        check_runnable(spec, objective)
        function = load_objective(objective)
        status = run_sweep(spec, ledger, store, function, resume=True, **options)
    ctx.exit(status)


def _with_budget(spec: SweepSpec, trials: str | None, time: str | None) -> SweepSpec:
    """The spec with the given parts of a new budget."""
    budget = spec.budget
    if trials is not None:
        if not (trials.isascii() and trials.isdigit() and int(trials) > 0):
            raise UsageError(f"--trials: a whole number of at least 1 is needed, got {trials!r}")
        budget = replace(budget, trials=int(trials))
    if time is not None:
        budget = replace(budget, time=parse_duration(time))
    return replace(spec, budget=budget)
