"""`automl enqueue SWEEP KEY=VALUE ...`: a configuration that the sweep tries next."""

from __future__ import annotations

from typing import Any

import click

from automl.core.events import Wished
from search_spaces import Space
from search_spaces.parameters import Value

from .common import opened, store_option, sweep_argument


@click.command("enqueue", short_help="Give a configuration for the sweep to try next.")
@sweep_argument
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...")
@store_option
def command(sweep: str, settings: tuple[str, ...], store: str) -> None:
    """Add a configuration that the sweep trains before any other: now if it runs, else when it is resumed.

    What is not named stays as in the best trial so far, or at its default.

    \b
    Example:
      automl enqueue nmt learning_rate=3e-3 width=96
    """
    from automl.workflows.retrain import enqueue

    with opened(store, write=True) as ledger:
        spec, snapshot = ledger.spec(sweep), ledger.snapshot(sweep)
        best: dict[str, Any] = dict(snapshot.best.params) if snapshot.best else {}
        params = spec.space.complete(
            {**best, **dict(_setting(text, spec.space) for text in settings)}
        )
        told = "  ".join(f"{k}={v}" for k, v in params.items())
        if snapshot.state == "running":
            spec.space.check(params)
            ledger.wish(sweep, Wished("enqueue", params, at=snapshot.seconds))
            click.echo(f"{sweep} tries next: {told}")
            return
        enqueue(ledger, sweep, [params])
        number = len(snapshot.trials)
    click.echo(f"trial {number} waits: {told}")
    if spec.budget.trials is not None and number >= spec.budget.trials:
        click.echo(f"the budget is used up: automl resume {sweep} --trials {number + 1}", err=True)


def _setting(text: str, space: Space) -> tuple[str, Value]:
    from automl.config.limits import read_setting

    return read_setting(text, space)
