"""`automl fit SWEEP`: train the best configuration on all data, and export it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from automl.core import SweepSpec, parse_duration
from automl.core.names import companion
from automl.errors import UsageError

from .common import (
    artifacts_option,
    objective_option,
    opened,
    output_option,
    ray_options,
    say,
    store_option,
    sweep_argument,
    trial_option,
)
from .export import show
from .program import Program, ProgramVerb, load_trained, shell_option
from .running import check_runnable, run_sweep

KIND = "fit"


@click.command(
    "fit",
    cls=ProgramVerb,
    short_help="Train the best configuration on all data, and export it.",
)
@sweep_argument
@store_option
@output_option("SWEEP-fit")
@trial_option
@click.option(
    "--train-time", metavar="TIME", help="Training time.  [default: as the trials of the sweep]"
)
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
    output: str | None,
    trial: int | None,
    train_time: str | None,
    objective: str | None,
    program: Program | None,
    artifacts: str | None,
    **options: Any,
) -> None:
    """Train the best configuration to its full length on training and validation data; export it.

    It runs as the sweep SWEEP.fit. Its validation metrics mean nothing, because it has trained on
    that data.

    \b
    Examples:
      automl fit nmt
      automl fit nmt --train-time 10m -o models/nmt
      automl fit mine -- python train.py --lr={lr}
    """
    from automl.workflows.artifacts import moved_to
    from automl.workflows.export import chosen, export
    from automl.workflows.retrain import prepare

    target = Path(output or f"{sweep}-fit")
    if target.exists() and any(target.iterdir()):
        raise UsageError(f"{target} is not empty; name a new folder with --output")
    with opened(store, write=True) as ledger:
        source = ledger.spec(sweep)
        check_runnable(source, objective, program, "fit")
        function = load_trained(source, objective, program)
        best, spec = chosen(ledger, sweep, trial), _fit_spec(source, train_time)
        spec = moved_to(spec, artifacts)
        if ledger.exists(companion(sweep, KIND)):
            ledger.delete(companion(sweep, KIND))
        spec = prepare(ledger, spec, [best.params])
        if status := run_sweep(
            spec, ledger, store, function, summary=False, resume=True, **options
        ):
            ctx.exit(status)
        files = export(ledger, spec.name, chosen(ledger, spec.name, 0), target, artifacts)
    show(best.number, target, files, False)


def _fit_spec(source: SweepSpec, train_time: str | None) -> SweepSpec:
    """The sweep of one trial without early stopping, on validation data too if there is any."""
    from automl.workflows.retrain import derived

    data, goals = dict(source.data), source.goals
    if source.workload is not None:
        from workers.workloads import WORKLOADS

        if WORKLOADS.get(source.workload).trains_on_valid:
            data["with_valid"] = True
        else:
            say(
                f"{source.workload} has no validation data to add: it trains on training data only",
                err=True,
            )
    if train_time is not None:
        if source.workload is None:
            raise UsageError(
                "--train-time is for workloads: an objective or a command decides itself "
                "how long it trains"
            )
        goals = tuple(replace(goal, within=parse_duration(train_time)) for goal in goals)
    return derived(source, KIND, 1, data=data, goals=goals)
