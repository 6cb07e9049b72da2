"""Where tables and the live view are printed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

WIDE = 200


def console(*, stderr: bool = False) -> Console:
    """The terminal, or what the output is piped into: plain then, and wide enough not to cut what a person greps."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else WIDE
    return Console(file=stream, width=width, highlight=False, soft_wrap=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[RenderableType]], *, right: Sequence[str] = ()) -> Table:
    """A table without rules; the last column takes the room that is left, and is cut where there is none.

    Args:
        right: columns that hold numbers.
    """
    found = Table(box=None, pad_edge=False, header_style="bold", expand=False)
    for index, column in enumerate(columns):
        last = index == len(columns) - 1
        justify = "right" if column in right else "left"
        found.add_column(column, justify=justify, no_wrap=True, overflow="ellipsis", ratio=1 if last else None)  # type: ignore[arg-type]
    for row in rows:
        found.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return found
