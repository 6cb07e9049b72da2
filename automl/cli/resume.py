"""`automl resume SWEEP`: go on with an interrupted sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from automl.errors import UsageError

from .common import opened, store_option, sweep_argument
from .objective import load_objective, objective_option
from .running import ray_options, run_sweep

if TYPE_CHECKING:
    from automl.spec import SweepSpec


@click.command("resume", short_help="Go on with an interrupted sweep.")
@sweep_argument
@store_option
@objective_option
@ray_options
@click.pass_context
def command(ctx: click.Context, /, sweep: str, store: str, objective: str | None, **where: Any) -> None:
    """Go on with a sweep that was interrupted, on the budget that it has left.

    Finished trials stay as they are; interrupted ones go on from their newest checkpoint.

    \b
    Examples:
      automl resume nmt
      automl resume mine --objective train.py:objective
    """
    with opened(store, write=True) as ledger:
        spec = ledger.spec(sweep)
        if ledger.snapshot(sweep).state == "finished":
            click.echo(f"{sweep} is finished; see automl best {sweep}", err=True)
            return
        _check(spec, objective)
        function = load_objective(objective) if objective else None
        status = run_sweep(spec, ledger, store, objective=function, resume=True, **where)
    ctx.exit(status)


def _check(spec: SweepSpec, objective: str | None) -> None:
    """What a sweep needs must still be there."""
    if spec.workload is None and objective is None:
        raise UsageError(f"sweep {spec.name} tunes a function of your own: name it with --objective FILE:NAME")
    if spec.workload is not None:
        from workers.workloads import WORKLOADS

        if objective is not None:
            raise UsageError(f"sweep {spec.name} tunes the workload {spec.workload}: leave --objective out")
        WORKLOADS.get(spec.workload).check(spec.data, spec.fixed)
