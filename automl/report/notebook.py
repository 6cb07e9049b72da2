"""A sweep as notebooks show it."""

from html import escape as quoted

from automl.core import Snapshot, text

from . import bundle, summary
from .figures import draw
from .page import panel_html, table, trial_rows
from .plotting import escape
from .record import Record
from .static_chart import static_chart

FIGURES = ("parallel", "pareto", "curves")  # those that need no surrogates, which take seconds
FRAME_HEIGHT = 560  # pixels


def card(snapshot: Snapshot) -> str:
    """A sweep as HTML: the result, its course, the best trials, and figures to select trials in."""
    return answer(snapshot) + frame(snapshot)


def answer(snapshot: Snapshot, count: int = 5) -> str:
    """The result, its course and the best trials."""
    record = Record.of(snapshot)
    scored = [trial for trial, _ in record.scored()]
    rows = [(*row[:-2], row[-1]) for row in trial_rows(record, scored[:count])]
    metrics = (goal.metric for goal in snapshot.goals)
    header = ("trial", "state", *metrics, "time", "memory", "configuration")
    time = text.duration(snapshot.seconds)
    state = escape(f"{snapshot.sweep}: {snapshot.state}, {len(record.trials)} trials in {time}")
    headline = escape(summary.headline(snapshot))
    if not rows:
        return f"<p><b>{state}</b><br>{headline}</p>"
    chart = f'<div style="max-width:640px">{static_chart(record)}</div>'
    return f"<p><b>{state}</b><br>{headline}</p>{chart}{table(header, rows)}"


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
    page = quoted(bundle.page(name, body, bare=True))
    return (
        f'<iframe title="Figures of {name}" sandbox="allow-scripts allow-downloads" '
        f'style="width:100%;height:{FRAME_HEIGHT}px;border:0" srcdoc="{page}"></iframe>'
    )
