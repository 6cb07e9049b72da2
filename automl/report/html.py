"""HTML elements made of plain text."""

import json
from collections.abc import Sequence
from typing import Any

from .plotting import escape


def as_json(value: Any) -> str:
    """JSON that is safe inside a script element."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = (), best: int = -1
) -> str:
    """A table of plain text; `numbers` are columns to align right, `best` is a row to highlight."""
    top = f"<thead>{_row('th', head, numbers)}</thead>" if head else ""
    body = "".join(
        _row("td", row, numbers, "best" if i == best else "") for i, row in enumerate(rows)
    )
    return f"<table>{top}<tbody>{body}</tbody></table>"


def _row(tag: str, cells: Sequence[str], numbers: Sequence[int], kind: str = "") -> str:
    found = "".join(
        f'<{tag} class="number">{escape(cell)}</{tag}>'
        if i in numbers
        else f"<{tag}>{escape(cell)}</{tag}>"
        for i, cell in enumerate(cells)
    )
    return f'<tr class="{kind}">{found}</tr>' if kind else f"<tr>{found}</tr>"
