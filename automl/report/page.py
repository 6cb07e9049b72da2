"""The report of a sweep: one HTML file that works offline."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from string import Template

from automl.core import text
from automl.core.snapshot import Snapshot
from automl.core.trial import Trial
from automl.errors import UsageError

from . import answer, asked
from .draw import Panel, escape
from .effects import Insight, study
from .figures import PANELS
from .html import as_json, link, table
from .recipe import recipe
from .record import Record
from .sketch import sketch

MOST_ROWS = 200


def save(sweep: Snapshot | Record, path: str | os.PathLike[str], *, ax: bool = False) -> None:
    """Write the report; a file that is there is replaced only when the new one is complete.

    Args:
        ax: whether Ax's plots over two parameters are in it, which take tens of seconds.

    Raises:
        UsageError: plotly is not installed, or the file cannot be written.
    """
    record = sweep if isinstance(sweep, Record) else Record.of(sweep)
    target, page = Path(path), render(record, [surfaces(record)] if ax else ())
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=target.parent, delete=False
        ) as file:
            file.write(page)
        Path(file.name).chmod(0o644)
        Path(file.name).replace(target)
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}") from error


def render(record: Record, more: Sequence[Panel] = ()) -> str:
    """The report as the text of an HTML page, with `more` panels behind its own."""
    insights = study(record)
    panels = [*(draw(record, insights) for draw in PANELS), *more]
    parts = {
        "title": f"{escape(record.snapshot.sweep)}: report of a sweep",
        "head": "\n".join(_head(record, insights, panels)),
        "body": "\n".join(
            [
                *_tables(record),
                *(part for panel in panels for part in section(panel)),
                *_trials(record),
            ]
        ),
        "foot": "Written by automl report. The page needs no network.",
        "css": asset("page.css"),
        "js": asset("page.js"),
        "plotly": plotly_js(),
    }
    return Template(asset("page.html")).substitute(parts)


def asset(name: str) -> str:
    """A file that is part of every page."""
    return (resources.files("automl.report") / "assets" / name).read_text(encoding="utf-8")


def plotly_js() -> str:
    """The library that draws, as text.

    Raises:
        UsageError: plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ModuleNotFoundError as error:
        raise UsageError("a report needs plotly: install automl[report]") from error
    # A closing tag inside a script would end it.
    return str(get_plotlyjs()).replace("</script", "<\\/script")


def surfaces(record: Record) -> Panel:
    """What Ax's own model says of one and of two parameters together, which the report does not draw itself."""
    from automl.integrations import ax_view

    caption = (
        f"Ax's slices and contours of {record.goal.metric}, of a model of its own: conditional parameters are "
        "flattened, trials that failed are left out. Contours show what two parameters do together."
    )
    figures = []
    for found in ax_view.surfaces(record.snapshot):
        layout = {
            **found["layout"],
            "height": 440,
            "title": {"text": escape(found["title"]), "font": {"size": 14}},
        }
        figures.append({"data": found["data"], "layout": layout})
    return Panel("ax", "Two parameters together, by Ax", caption, tuple(figures))


def section(panel: Panel) -> Iterator[str]:
    """A panel as HTML: its figures as data beside the places where they are drawn."""
    yield f'<section id="{panel.key}"><h2>{escape(panel.title)}</h2><p>{escape(panel.caption)}</p>'
    for i, figure in enumerate(panel.figures):
        key, height = f"{panel.key}-{i}", figure["layout"]["height"]
        yield f'<div class="figure" id="{key}" data-spec="{key}-spec" style="min-height:{height}px"></div>'
        yield f'<script type="application/json" id="{key}-spec">{as_json(figure)}</script>'
    yield "</section>"


def card(snapshot: Snapshot, count: int = 5) -> str:
    """A sweep in a few lines of HTML, for notebooks."""
    record = Record.of(snapshot)
    rows = [_row(record, trial)[:-2] for trial, _ in record.scored()[:count]]
    head = ("trial", "state", *(goal.metric for goal in snapshot.goals), "time", "memory")
    state = f"{snapshot.sweep}: {snapshot.state}, {len(record.trials)} trials in {text.duration(snapshot.seconds)}"
    best = f"<pre>{escape(text.configuration(snapshot.best.params))}</pre>" if snapshot.best else ""
    return f"<p><b>{escape(state)}</b><br>{escape(answer.sentence(record))}</p>{table(head, rows)}{best}"


def _head(record: Record, insights: Sequence[Insight], panels: Sequence[Panel]) -> Iterator[str]:
    snapshot = record.snapshot
    count = f"{len(record.trials)} trial{'s' if len(record.trials) != 1 else ''}"
    failed = text.failure_text(record.trials)
    yield f"<h1>{escape(snapshot.sweep)}</h1>"
    state = f"{snapshot.state}, {count} in {text.duration(snapshot.seconds)}{', ' + failed if failed else ''}"
    yield f'<p class="state">{escape(state)}</p>'
    yield f'<p class="answer">{escape(answer.sentence(record))}</p>'
    yield f'<p class="certainty">{escape(answer.certainty(record, insights))}</p>'
    yield sketch(record)
    links = [
        ("asked", "What was asked"),
        ("recipe", "Best configuration"),
        *((p.key, p.title) for p in panels),
    ]
    yield f"<nav>{''.join(link(f'#{key}', name) for key, name in links)}{link('#trials', 'Trials')}</nav>"
    doubts = list(answer.doubts(record, insights))
    if doubts:
        items = "".join(f"<li>{escape(doubt)}</li>" for doubt in doubts)
        yield f'<section class="doubts" id="warnings"><h2>Warnings</h2><ul>{items}</ul></section>'


def _tables(record: Record) -> Iterator[str]:
    yield '<section id="asked"><h2>What was asked</h2>'
    yield table((), asked.question(record))
    yield "<h3>What was tuned</h3>"
    yield table(
        ("parameter", "what may be tried", "default", "affects", "exists when"), asked.space(record)
    )
    for constraint in record.space.constraints:
        yield f"<p>Only where {escape(str(constraint))}.</p>"
    if environment := asked.environment(record):
        yield f"<h3>Where it ran</h3>{table((), environment)}"
    yield "</section>"
    best = record.snapshot.best
    yield '<section id="recipe"><h2>Best configuration</h2>'
    if best is None:
        yield "<p>No trial has succeeded.</p></section>"
        return
    yield f'<div class="recipe"><button type="button">Copy</button><pre>{escape(recipe(record.spec, best))}</pre></div>'
    yield (
        "<h3>Beside the default</h3>"
        if text.has_default(record.snapshot)
        else "<h3>Beside trial 0</h3>"
    )
    yield _comparison(record, best)
    yield "</section>"


def _comparison(record: Record, best: Trial) -> str:
    """Parameters and metrics of the best trial and of trial 0."""
    first = record.trials[0]
    rows = []
    for name in record.space.parameters:
        if name in best.params or name in first.params:
            rows.append(
                (
                    name,
                    *(
                        text.number(t.params[name]) if name in t.params else "none"
                        for t in (best, first)
                    ),
                )
            )
    for index, goal in enumerate(record.snapshot.goals):
        values = [record.value(trial, index) for trial in (best, first)]
        if values != [trial.metrics.get(goal.metric) for trial in (best, first)]:
            shown = ("none" if value is None else text.number(value) for value in values)
            rows.append((f"{goal.metric} (best report, which counts)", *shown))
    for name in best.metrics:
        show = text.memory if name.endswith("_bytes") else text.number
        cells = (show(t.metrics[name]) if name in t.metrics else "none" for t in (best, first))
        rows.append((f"{name} (reported)" if name in record.space.parameters else name, *cells))
    return table(("", f"trial {best.number}, the best", "trial 0"), rows, numbers=(1, 2))


def _trials(record: Record) -> Iterator[str]:
    """The best trials and the newest failures."""
    goals = record.snapshot.goals
    scored = [trial for trial, _ in record.scored()]
    known = {trial.number for trial in scored}
    others = [trial for trial in record.trials if trial.number not in known][::-1]
    room = max(MOST_ROWS - len(others[: MOST_ROWS // 4]), 0)
    shown = [*scored[:room], *others[: MOST_ROWS - len(scored[:room])]]
    rows = [_row(record, trial) for trial in shown]
    left_out = len(record.trials) - len(shown)
    yield '<section id="trials"><h2>Trials</h2>'
    more = f" {left_out} more are shown by automl trials {record.spec.name}." if left_out else ""
    yield f"<p>The best first.{escape(more)}</p>"
    head = (
        "trial",
        "state",
        *(goal.metric for goal in goals),
        "time",
        "memory",
        "from",
        "configuration",
    )
    numbers = (0, *range(2, 4 + len(goals)))
    yield f'<div class="scroll">{table(head, rows, numbers, best=0 if scored else -1)}</div></section>'


def _row(record: Record, trial: Trial) -> tuple[str, ...]:
    values = [record.value(trial, index) for index in range(len(record.snapshot.goals))]
    state = trial.failure.replace("_", " ") if trial.failure else str(trial.state)
    return (
        str(trial.number),
        state,
        *("-" if value is None else text.number(value) for value in values),
        text.duration(trial.seconds),
        text.memory(trial.peak_memory_bytes),
        trial.source,
        text.configuration(trial.params),
    )
