"""`automl resume SWEEP`: continue an interrupted sweep."""

from dataclasses import replace
from typing import Any

import click

from automl.core import SweepSpec
from automl.errors import UsageError
from workers.artifacts.location import read_location

from .common import (
    artifacts_option,
    budget_options,
    given_limits,
    json_option,
    objective_option,
    opened,
    ray_options,
    say,
    store_option,
    sweep_argument,
)
from .live import live_options
from .program import Program, ProgramVerb, load_trained, shell_option
from .running import check_runnable, run_sweep


@click.command("resume", cls=ProgramVerb, short_help="Continue an interrupted sweep.")
@sweep_argument
@click.argument("overrides", nargs=-1, metavar="[space.KEY=VALUE]...")
@click.option(
    "--config",
    type=click.Path(),
    metavar="FILE",
    help="Take the space from this configuration, which may have changed since.",
)
@click.option(
    "--trial",
    type=click.IntRange(min=0),
    metavar="N",
    help="Continue only this paused trial of a sweep that runs elsewhere.",
)
@store_option
@budget_options
@json_option
@objective_option
@shell_option
@artifacts_option
@ray_options
@live_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    sweep: str,
    overrides: tuple[str, ...],
    config: str | None,
    trial: int | None,
    store: str,
    trials: str | None,
    budget: str | None,
    objective: str | None,
    program: Program | None,
    artifacts: str | None,
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
      automl resume mine -- python train.py --lr={lr}
      automl resume nmt --artifacts s3://bucket/sweeps
      automl resume nmt --trial 12
    """
    if trial is not None:
        from automl.workflows import steering

        with opened(store, write=True) as ledger:
            say(steering.resume_trial(ledger, sweep, trial))
        return
    status = continue_sweep(
        sweep,
        store,
        trials=trials,
        budget=budget,
        objective=objective,
        program=program,
        config=config,
        overrides=overrides,
        artifacts=artifacts,
        **options,
    )
    ctx.exit(status)


def continue_sweep(
    sweep: str,
    store: str,
    *,
    trials: str | None,
    budget: str | None,
    objective: str | None,
    program: Program | None,
    config: str | None = None,
    overrides: tuple[str, ...] = (),
    artifacts: str | None = None,
    **options: Any,
) -> int:
    """Run the rest of a sweep, and return the exit status; the arguments are those of the verb."""
    with opened(store, write=True) as ledger:
        stored = ledger.spec(sweep)
        changed = replace(stored.budget, **given_limits(trials, budget))
        spec = replace(stored, budget=changed)
        spec = _with_space(spec.with_location(""), config, overrides)
        spec = spec.with_location(read_location(artifacts)) if artifacts else spec
        if ledger.snapshot(sweep).state == "finished" and spec.budget == stored.budget:
            say(f"{sweep} is finished; to continue, raise --trials or --budget", err=True)
            return 0
        if options["dispatcher"] != "agents":  # they know what to train
            check_runnable(spec, objective, program, "resume")
            spec = replace(spec, command="" if program is None else str(program))
        function = load_trained(spec, objective, program)
        return run_sweep(spec, ledger, store, function, resume=True, **options)


def _with_space(spec: SweepSpec, config: str | None, overrides: tuple[str, ...]) -> SweepSpec:
    """The spec with the space of a configuration, or with the overrides in its own."""
    if config is not None:
        from automl.config import load

        found = load(config, overrides, objective=None).spec
        if found.workload != spec.workload:
            raise UsageError(
                f"--config: {config} tunes {found.trained}, sweep {spec.name} tunes {spec.trained}"
            )
        return replace(spec, space=found.space, artifacts=found.artifacts)
    if overrides:
        from automl.config.overrides import with_changes

        return replace(spec, space=with_changes(spec.space, overrides))
    return spec
