"""`automl pin SWEEP KEY=VALUE ...`: pin or narrow a parameter from the next suggestion on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from automl.core.events import Wished
from automl.errors import UsageError

from .common import emit, json_option, opened, store_option, sweep_argument

if TYPE_CHECKING:
    from automl.suggesters.domain import Limits


@click.command("pin", short_help="Pin or narrow a parameter, also while the sweep runs.")
@sweep_argument
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE|KEY=LOW..HIGH|KEY=[VALUE,VALUE]]...")
@click.option(
    "--release", multiple=True, metavar="KEY", help="Let a parameter vary as it was declared again."
)
@store_option
@json_option
def command(
    sweep: str, settings: tuple[str, ...], release: tuple[str, ...], store: str, as_json: bool
) -> None:
    """Pin a parameter to a value, or narrow what is tried of it, from the next suggestion on.

    A running sweep obeys at once, another one when it is resumed; what was tried before still counts, and trials that
    were proposed already are trained as they are. Without a setting, what holds now is shown.

    \b
    Examples:
      automl pin nmt precision=fp32
      automl pin nmt learning_rate=1e-4..1e-3 attention_layout=[packed,separate]
      automl pin nmt --release precision
      automl pin nmt
    """
    from automl.config.limits import read_limit
    from automl.suggesters.domain import Domain, updated_limits

    with opened(store, write=bool(settings or release)) as ledger:
        spec, snapshot = ledger.spec(sweep), ledger.snapshot(sweep)
        wishes = [wish.content for wish in ledger.wishes(sweep) if wish.kind == "limits"]
        limits = updated_limits(wishes)
        asked = dict(read_limit(text, spec.space) for text in settings)
        for name in release:
            if name not in limits:
                raise UsageError(f"{name} is not pinned or narrowed in {sweep}")
        if asked or release:
            content: dict[str, Any] = {name: limit.to_dict() for name, limit in asked.items()}
            wish = Wished("limits", {**dict.fromkeys(release), **content}, at=snapshot.seconds)
            limits = updated_limits([wish.content], limits)
            Domain(spec.space, limits)  # raises if no configuration is left
            ledger.wish(sweep, wish)
    if as_json:
        emit({"sweep": sweep, "limits": {name: limit.to_dict() for name, limit in limits.items()}})
    else:
        _print(sweep, limits, snapshot.state == "running")


def _print(sweep: str, limits: Limits, running: bool) -> None:
    for name, limit in limits.items():
        click.echo(f"{name}: {limit}")
    if not limits:
        click.echo(f"nothing is pinned or narrowed in {sweep}")
    elif not running:
        click.echo(f"holds when the sweep goes on: automl resume {sweep}", err=True)
