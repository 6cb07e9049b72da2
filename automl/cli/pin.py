"""`automl pin SWEEP KEY=VALUE ...`: fix or narrow a parameter from the next suggestion on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .common import emit, json_option, opened, say, store_option, sweep_argument

if TYPE_CHECKING:
    from automl.suggesters.domain import Limits


@click.command("pin", short_help="Fix or narrow a parameter, also while the sweep runs.")
@sweep_argument
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE|KEY=LOW..HIGH|KEY=[VALUE,VALUE]]...")
@click.option("--release", multiple=True, metavar="KEY", help="Remove the limit of a parameter.")
@store_option
@json_option
def command(
    sweep: str, settings: tuple[str, ...], release: tuple[str, ...], store: str, as_json: bool
) -> None:
    """Fix a parameter at a value, or narrow its range, from the next suggestion on.

    A running sweep follows at once, another one after a resume. Earlier trials still count, and
    proposed trials are trained unchanged. Without a setting, the present limits are shown.

    \b
    Examples:
      automl pin nmt precision=fp32
      automl pin nmt learning_rate=1e-4..1e-3 attention_layout=[packed,separate]
      automl pin nmt --release precision
      automl pin nmt
    """
    from automl.config.limits import read_limit
    from automl.workflows.next_trials import pin

    with opened(store, write=bool(settings or release)) as ledger:
        spec, snapshot = ledger.spec(sweep), ledger.snapshot(sweep)
        given = dict(read_limit(text, spec.space) for text in settings)
        limits = pin(ledger, sweep, given, release)
    if as_json:
        emit({"sweep": sweep, "limits": {name: limit.to_dict() for name, limit in limits.items()}})
    else:
        _print(sweep, limits, snapshot.state == "running")


def _print(sweep: str, limits: Limits, running: bool) -> None:
    for name, limit in limits.items():
        say(f"{name}: {limit}")
    if not limits:
        say(f"nothing is pinned or narrowed in {sweep}")
    elif not running:
        say(f"the limits hold after: automl resume {sweep}", err=True)
