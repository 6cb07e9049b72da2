"""HTML elements made of plain text."""

import json
from collections.abc import Sequence
from typing import Any

from .plotting import escape


def as_json(value: Any) -> str:
    """JSON that is safe inside a script element."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: Sequence[int] = (),
    best: int = -1,
    trials: Sequence[int] = (),
) -> str:
    """A table of plain text.

    Args:
        numbers: columns to align right.
        best: a row to highlight.
        trials: of each row, if they can be selected.
    """
    top = f"<thead>{_row('th', header, numbers)}</thead>" if header else ""
    body = "".join(
        _row("td", row, numbers, "best" if i == best else "", trials[i] if trials else None)
        for i, row in enumerate(rows)
    )
    return f"<table>{top}<tbody>{body}</tbody></table>"


def scrolled(content: str, label: str) -> str:
    """A part of the page that scrolls by itself if it is too wide, by keyboard too."""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">'
        f"{content}</div>"
    )


def _row(
    tag: str,
    cells: Sequence[str],
    numbers: Sequence[int],
    kind: str = "",
    trial: int | None = None,
) -> str:
    tags = [tag if cell else "td" for cell in cells]  # a heading is never empty
    found = "".join(
        f'<{own} class="number">{escape(cell)}</{own}>'
        if i in numbers
        else f"<{own}>{escape(cell)}</{own}>"
        for i, (own, cell) in enumerate(zip(tags, cells, strict=True))
    )
    mark = f' class="{kind}"' if kind else ""
    place = "" if trial is None else f' id="trial-{trial}" data-trial="{trial}"'
    return f"<tr{mark}{place}>{found}</tr>"
