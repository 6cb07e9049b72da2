"""A sweep as notebooks show it: the answer as text, and the page of the report in a frame."""

import html

from automl.core import Snapshot, TrialState
from automl.core.standings import Standings
from automl.core.text import printable

from .page import data_of, one_file
from .record import Record
from .terminal_view import state_lines

FRAME_HEIGHT = 640  # pixels
MAX_TRIALS = 300  # in a cell


def escape(raw: str) -> str:
    """Text as HTML, with control characters escaped."""
    return html.escape(printable(raw, keep="\n\t"))


def card(snapshot: Snapshot) -> str:
    """A sweep as HTML: its state and answer, then the page of the report."""
    return answer(snapshot) + frame(snapshot)


def answer(snapshot: Snapshot) -> str:
    """The state and the best so far; the first error if no trial has succeeded."""
    lines = state_lines(snapshot, Standings.of(snapshot).counts())
    state = "<br>".join(map(escape, lines if snapshot.state == "running" else lines[:1]))
    found = f"<p><b>{escape(snapshot.sweep)}</b>: {state}</p>"
    if snapshot.best is not None:
        return found
    failed = snapshot.in_state(TrialState.FAILED)[:1]
    return found + "".join(f"<pre>{escape(t.traceback or t.message)}</pre>" for t in failed)


def frame(snapshot: Snapshot) -> str:
    """The page of the report in a frame of its own; "" before a trial has succeeded.

    A notebook that is not trusted leaves the frame out.
    """
    if snapshot.best is None:
        return ""
    data = data_of(Record.of(snapshot), modelled=snapshot.state != "running")
    data["table"]["rows"] = data["table"]["rows"][-MAX_TRIALS:]
    page = html.escape(one_file(escape(snapshot.sweep), data, kind="bare"))
    return (
        f'<iframe title="Report of {escape(snapshot.sweep)}" '
        'sandbox="allow-scripts allow-downloads" '
        f'style="width:100%;height:{FRAME_HEIGHT}px;border:0" srcdoc="{page}"></iframe>'
    )
