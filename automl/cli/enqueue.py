"""`automl enqueue SWEEP KEY=VALUE ...`: a configuration that the sweep tries next."""

from __future__ import annotations

from typing import Any

import click

from automl.errors import UsageError
from search_spaces.plugins import nearest

from .common import opened, store_option, sweep_argument


@click.command("enqueue", short_help="Give a configuration for the sweep to try next.")
@sweep_argument
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...")
@store_option
def command(sweep: str, settings: tuple[str, ...], store: str) -> None:
    """Add a configuration that the sweep trains before any other when it is resumed.

    What is not named stays as in the best trial so far, or at its default. A sweep that runs must be interrupted first.

    \b
    Example:
      automl enqueue nmt learning_rate=3e-3 width=96
      automl resume nmt
    """
    from automl.again import enqueue

    with opened(store, write=True) as ledger:
        spec, snapshot = ledger.spec(sweep), ledger.snapshot(sweep)
        best: dict[str, Any] = dict(snapshot.best.params) if snapshot.best else {}
        params = spec.space.complete({**best, **dict(_setting(text, spec.space) for text in settings)})
        enqueue(ledger, sweep, [params])
        number = len(snapshot.trials)
    click.echo(f"trial {number} waits: {'  '.join(f'{k}={v}' for k, v in params.items())}")
    if spec.budget.trials is not None and number >= spec.budget.trials:
        click.echo(f"the budget is used up: automl resume {sweep} --trials {number + 1}", err=True)


def _setting(text: str, space: Any) -> tuple[str, Any]:
    from automl.config.scalars import plain_scalar

    key, equals, raw = text.partition("=")
    if not equals:
        raise UsageError(f"a setting is KEY=VALUE, got {text!r}")
    if key not in space.parameters:
        raise UsageError(f"the sweep tunes no {key!r}: {nearest(key, list(space.parameters))}")
    return key, plain_scalar(raw)
