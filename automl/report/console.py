"""Where tables and the live view are printed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

WIDE = 200


def console(*, width: int = WIDE) -> Console:
    """The terminal, or what the output is piped into: plain then, `width` wide so as not to cut what a person greps."""
    known = sys.stdout.isatty() or os.environ.get("COLUMNS")
    return Console(width=None if known else width, highlight=False)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[RenderableType]], *, right: Sequence[str] = ()
) -> Table:
    """A table without rules; the last column is cut where there is no room for it.

    Args:
        right: columns that hold numbers.
    """
    found = Table(box=None, pad_edge=False, header_style="bold")
    cells = [[_one_line(cell) for cell in row] for row in rows]
    for index, column in enumerate(columns):
        texts = [row[index] for row in cells]
        width = max((text.cell_len for text in texts if isinstance(text, Text)), default=0)
        last = index == len(columns) - 1
        found.add_column(
            column,
            justify="right" if column in right else "left",
            no_wrap=not last,  # rich makes only columns that may wrap narrower
            min_width=None if last else max(width, len(column)),
        )
    for row in cells:
        found.add_row(*row)
    return found


def _one_line(cell: RenderableType) -> RenderableType:
    text = Text(cell) if isinstance(cell, str) else cell
    if isinstance(text, Text):
        text.no_wrap, text.overflow = True, "ellipsis"
    return text
