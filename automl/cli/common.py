"""Opening of the store and output that several verbs share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import click

from automl.actions import arguments
from automl.core.arguments import json_data
from automl.core.resources import LIMITS
from automl.core.text import printable
from automl.errors import UsageError

if TYPE_CHECKING:
    from automl.config import Override
    from automl.ledger import Ledger

STORE: Final = arguments.STORE_FOLDER
WIDE: Final = 200  # columns, if there is no terminal


def given_settings(options: Mapping[str, Any]) -> list[Override]:
    """The overrides of a configuration that the flags of settings stand for."""
    from automl.config import Override

    named = (
        (name, path) for name, (path, _) in arguments.FLAGS.items() if options.get(name) is not None
    )
    return [Override(path, options[name], f"--{name.replace('_', '-')}") for name, path in named]


def given_limits(trials: str | None, budget: str | None) -> dict[str, Any]:
    """The limits that `--trials` and `--budget` name, as fields of `Budget`."""
    number = int(trials) if trials and trials.isascii() and trials.isdigit() else trials
    given = {"trials": ("--trials", number), "time": ("--budget", budget)}
    return {
        name: LIMITS[name].read(flag, value)
        for name, (flag, value) in given.items()
        if value is not None
    }


def newest_sweep(store: str) -> str:
    """The name of the sweep that was created last; raises UsageError if there is none."""
    with opened(store) as ledger:
        newest = max(ledger.sweeps(), key=lambda info: info.created, default=None)
    if newest is None:
        raise UsageError(f"there is no sweep in {store}: start one with automl sweep")
    return newest.name


def opened(store: str, *, write: bool = False, create: bool = False) -> closing[Ledger]:
    """Open a store; leaving the context closes it."""
    from automl.ledger import Ledger

    if create:
        Ledger.open(store, create=True).close()
    return closing(Ledger.open(store, readonly=not write))


def say(words: str, *, err: bool = False) -> None:
    """Print text, with control characters escaped."""
    click.echo(printable(words, keep="\n\t"), err=err)


def emit(data: Any) -> None:
    """Print JSON. Numbers that are not finite become the texts "nan", "inf" and "-inf"."""
    say(json.dumps(json_data(data), indent=2, ensure_ascii=False, allow_nan=False))


def draw(*things: Any, width: int = WIDE) -> None:
    """Print tables and texts for people."""
    from automl.report.console import console

    out = console(width=width)
    for one in things:
        out.print(one)


def draw_table(columns: list[str], rows: list[list[str]], right: Sequence[str] = ()) -> None:
    """Print a table; the columns that `right` names are flush right."""
    from automl.report.console import table

    draw(table(columns, rows, right=right))
