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
@click.argument("overrides", nargs=-1, metavar="[space.KEY=VALUE]...")
@click.option(
    "--config",
    type=click.Path(),
    metavar="FILE",
    help="Take the space from this configuration, which may have changed since.",
)
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
    overrides: tuple[str, ...],
    config: str | None,
    store: str,
    trials: str | None,
    budget: str | None,
    objective: str | None,
    **options: Any,
) -> None:
    """Continue an interrupted sweep with the rest of its budget, or with a larger one.

    Finished trials stay. Interrupted trials continue from their newest checkpoint. The space may
    change: wider or narrower ranges, other choices, new parameters with a default. What was learned
    is kept; values that are left out are not tried again. A sweep that reached its budget needs a
    larger one to go on.

    \b
    Examples:
      automl resume nmt
      automl resume nmt --trials 60 --budget 1h
      automl resume nmt --trials 60 space.learning_rate.high=0.3 'space.optimizer=[adamw, lion]'
      automl resume nmt --trials 60 --config configs/nmt.yaml
      automl resume mine --objective train.py:objective
    """
    with opened(store, write=True) as ledger:
        spec = _with_budget(ledger.spec(sweep), trials, budget)
        spec = _with_space(spec, config, overrides)
        if ledger.snapshot(sweep).state == "finished" and spec.budget == ledger.spec(sweep).budget:
            say(f"{sweep} is finished; to continue, raise --trials or --budget", err=True)
            return
        check_runnable(spec, objective)
        function = load_objective(objective)
        status = run_sweep(spec, ledger, store, function, resume=True, **options)
    ctx.exit(status)


def _with_space(spec: SweepSpec, config: str | None, overrides: tuple[str, ...]) -> SweepSpec:
    """The spec with the space of a configuration, or with the overrides in its own."""
    if config is not None:
        from automl.config import load

        found = load(config, overrides, objective=None).spec
        if found.workload != spec.workload:
            raise UsageError(
                f"--config: {config} tunes {found.workload or 'an objective'}, "
                f"sweep {spec.name} tunes {spec.workload or 'an objective'}"
            )
        return replace(spec, space=found.space)
    if overrides:
        from automl.config.space_changes import with_changes

        return replace(spec, space=with_changes(spec.space, overrides))
    return spec


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
