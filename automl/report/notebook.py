"""A sweep as notebooks show it."""

from html import escape as quoted

from automl.core import Snapshot, TrialState
from automl.core.standings import Standings

from . import bundle
from .figures import draw
from .page import panel_html, table, trial_rows
from .plotting import escape
from .record import Record
from .summary import headline
from .terminal_view import state_lines

FIGURES = (
    "progress",
    "parallel",
    "pareto",
    "curves",
)  # those that need no surrogates, which take seconds
FRAME_HEIGHT = 560  # pixels


def card(snapshot: Snapshot) -> str:
    """A sweep as HTML: the result, the best trials, and figures to select trials in."""
    return answer(snapshot) + frame(snapshot)


def answer(snapshot: Snapshot, count: int = 5) -> str:
    """The state, the result and the best trials; the first error if no trial has succeeded."""
    record = Record.of(snapshot)
    lines = state_lines(snapshot, Standings.of(snapshot).counts())
    state = "<br>".join(map(escape, lines if snapshot.state == "running" else lines[:1]))
    found = f"<p><b>{escape(snapshot.sweep)}</b>: {state}<br>{escape(headline(snapshot))}</p>"
    scored = [trial for trial, _ in record.scored()]
    if not scored:
        failed = snapshot.in_state(TrialState.FAILED)[:1]
        return found + "".join(f"<pre>{escape(t.traceback or t.message)}</pre>" for t in failed)
    rows = [(*row[:-2], row[-1]) for row in trial_rows(record, scored[:count])]
    metrics = (goal.metric for goal in snapshot.goals)
    header = ("trial", "state", *metrics, "time", "memory", "configuration")
    return found + table(header, rows)


def frame(snapshot: Snapshot) -> str:
    """Figures of the report in a frame of their own; "" if there are none yet.

    A notebook that is not trusted leaves the frame out.
    """
    record = Record.of(snapshot)
    panels = [panel for name in FIGURES if (panel := draw(name, record, ())).figures]
    if not panels:
        return ""
    name = escape(snapshot.sweep)
    body = ['<div class="panels">', *(part for one in panels for part in panel_html(one)), "</div>"]
    page = quoted(bundle.page(name, body))
    return (
        f'<iframe title="Figures of {name}" sandbox="allow-scripts allow-downloads" '
        f'style="width:100%;height:{FRAME_HEIGHT}px;border:0" srcdoc="{page}"></iframe>'
    )
