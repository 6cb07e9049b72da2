"""The console and the tables of the command line."""

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderHook, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from automl.core.text import printable

WIDE = 200


def console(*, width: int = WIDE) -> Console:
    """A console for standard output; without a terminal it is plain and `width` columns wide."""
    known = sys.stdout.isatty() or os.environ.get("COLUMNS")
    found = Console(width=None if known else width, highlight=False)
    found.push_render_hook(_EscapeAll())
    return found


@dataclass(frozen=True)
class Escaped:
    """Something to draw, with the control characters of its texts escaped."""

    drawn: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it; what rich itself sends to move the cursor stays."""
        for segment in console.render(self.drawn, options):
            text = segment.text if segment.control else printable(segment.text, keep="\n")
            yield Segment(text, segment.style, segment.control)


class _EscapeAll(RenderHook):
    def process_renderables(self, renderables: list[Any]) -> list[Any]:
        return [Escaped(one) for one in renderables]


def table(
    columns: Sequence[str], rows: Iterable[Sequence[RenderableType]], *, right: Sequence[str] = ()
) -> Table:
    """A table without rules; its last column is cut if there is no room.

    Args:
        right: columns to align right.
    """
    found = Table(box=None, pad_edge=False, header_style="bold")
    cells = [[_one_line(cell) for cell in row] for row in rows]
    for index, column in enumerate(columns):
        texts = [row[index] for row in cells]
        width = max((text.cell_len for text in texts if isinstance(text, Text)), default=0)
        last = index == len(columns) - 1
        found.add_column(
            printable(column),
            justify="right" if column in right else "left",
            no_wrap=not last,  # rich narrows only columns that may wrap
            min_width=None if last else max(width, len(column)),
        )
    for row in cells:
        found.add_row(*row)
    return found


def _one_line(cell: RenderableType) -> RenderableType:
    text = Text(cell) if isinstance(cell, str) else cell
    if isinstance(text, Text):
        if (plain := printable(text.plain)) != text.plain:
            text = Text(plain, text.style)
        text.no_wrap, text.overflow = True, "ellipsis"
    return text
