"""The report of a sweep: one HTML file that works offline."""

import os
import uuid
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from string import Template

from automl.core import Snapshot, Trial, text
from automl.errors import UsageError

from . import conclusion, setup, summary
from .effects import Insight, insights_of
from .figures import ORDER, draw
from .html import as_json, table
from .plotting import Panel, escape
from .recipe import recipe
from .record import Record
from .static_chart import static_chart

MAX_ROWS = 200


def save(sweep: Snapshot | Record, path: str | os.PathLike[str], *, ax: bool = False) -> None:
    """Write the report; an existing file is replaced once the new one is complete.

    Args:
        ax: whether to add Ax's plots over two parameters, which take tens of seconds.

    Raises:
        UsageError: plotly is not installed, or the file cannot be written.
    """
    record = sweep if isinstance(sweep, Record) else Record.of(sweep)
    target = Path(path)
    page = render(record, [surfaces(record)] if ax else ())
    try:
        draft = target.parent / f".{target.name}.{uuid.uuid4().hex}"
        try:
            draft.write_text(page, encoding="utf-8")
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}") from error


def render(record: Record, more: Sequence[Panel] = ()) -> str:
    """The report as an HTML page.

    The order of its sections: head (result, certainty, chart, links), warnings, setup, best
    configuration, the panels in the order of `figures.ORDER`, then `more` panels, trials.
    """
    insights = insights_of(record)
    panels = [*(draw(name, record, insights) for name in ORDER), *more]
    parts = {
        "title": f"{escape(record.snapshot.sweep)}: report of a sweep",
        "head": "\n".join(_head(record, insights, panels)),
        "body": "\n".join(
            [
                *_setup(record),
                *_best(record),
                *(part for panel in panels for part in _panel(panel)),
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
    """The text of a file in `assets`."""
    return (resources.files("automl.report") / "assets" / name).read_text(encoding="utf-8")


def plotly_js() -> str:
    """The JavaScript of plotly.

    Raises:
        UsageError: plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ModuleNotFoundError as error:
        raise UsageError("a report needs plotly: install automl[report]") from error
    # A closing tag inside the script would end it.
    return str(get_plotlyjs()).replace("</script", "<\\/script")


def surfaces(record: Record) -> Panel:
    """A panel of Ax's plots over one and two parameters, from Ax's own model."""
    from automl.integrations import ax_view

    caption = (
        f"Slices and contours of {record.goal.metric} by Ax, which fits its own model: conditional "
        "parameters are flattened and failed trials are left out. "
        "A contour shows the effect of two parameters together."
    )
    figures = [
        {
            "data": found["data"],
            "layout": {
                **found["layout"],
                "height": 440,
                "title": {"text": escape(found["title"]), "font": {"size": 14}},
            },
        }
        for found in ax_view.surfaces(record.snapshot)
    ]
    return Panel("ax", "Two parameters together, by Ax", caption, tuple(figures))


def _panel(panel: Panel) -> Iterator[str]:
    """A panel as HTML: a place for each figure, and its data."""
    kind = "" if panel.figures else ' class="empty"'
    yield f'<section id="{panel.key}"{kind}><h2>{escape(panel.title)}</h2>'
    yield f"<p>{escape(panel.caption)}</p>"
    for i, figure in enumerate(panel.figures):
        key, height = f"{panel.key}-{i}", figure["layout"]["height"]
        yield f'<div class="figure" id="{key}" data-spec="{key}-spec" '
        yield f'style="min-height:{height}px"></div>'
        yield f'<script type="application/json" id="{key}-spec">{as_json(figure)}</script>'
    yield "</section>"


def card(snapshot: Snapshot, count: int = 5) -> str:
    """A sweep in a few lines of HTML and a small figure, for notebooks."""
    record = Record.of(snapshot)
    scored = [trial for trial, _ in record.scored()]
    rows = [(*row[:-2], row[-1]) for row in _rows(record, scored[:count])]
    metrics = (goal.metric for goal in snapshot.goals)
    head = ("trial", "state", *metrics, "time", "memory", "configuration")
    time = text.duration(snapshot.seconds)
    state = escape(f"{snapshot.sweep}: {snapshot.state}, {len(record.trials)} trials in {time}")
    headline = escape(summary.headline(snapshot))
    if not rows:
        return f"<p><b>{state}</b><br>{headline}</p>"
    chart = f'<div style="max-width:640px">{static_chart(record)}</div>'
    return f"<p><b>{state}</b><br>{headline}</p>{chart}{table(head, rows)}"


def _head(record: Record, insights: Sequence[Insight], panels: Sequence[Panel]) -> Iterator[str]:
    snapshot = record.snapshot
    count = f"{len(record.trials)} trial{'s' if len(record.trials) != 1 else ''}"
    failed = text.failure_text(record.trials)
    yield f"<h1>{escape(snapshot.sweep)}</h1>"
    state = f"{snapshot.state}, {count} in {text.duration(snapshot.seconds)}"
    yield f'<p class="state">{escape(f"{state}, {failed}" if failed else state)}</p>'
    yield f'<p class="headline">{escape(summary.headline(snapshot))}</p>'
    yield f'<p class="certainty">{escape(conclusion.certainty(record, insights))}</p>'
    yield static_chart(record)
    links = [
        ("setup", "Setup"),
        ("recipe", "Best configuration"),
        *((panel.key, panel.title) for panel in panels),
        ("trials", "Trials"),
    ]
    anchors = (f'<a href="#{key}">{escape(name)}</a>' for key, name in links)
    yield f"<nav>{''.join(anchors)}</nav>"
    warnings = "".join(
        f"<li>{escape(warning)}</li>" for warning in conclusion.warnings(record, insights)
    )
    if warnings:
        yield '<section class="warnings" id="warnings"><h2>Warnings</h2>'
        yield f"<ul>{warnings}</ul></section>"


def _setup(record: Record) -> Iterator[str]:
    yield '<section id="setup"><h2>Setup</h2>'
    yield table((), setup.settings(record))
    yield "<h3>Search space</h3>"
    head = ("parameter", "values", "default", "affects", "active if")
    yield table(head, setup.search_space(record))
    for constraint in record.space.constraints:
        yield f"<p>Constraint: {escape(str(constraint))}.</p>"
    if environment := setup.environment(record):
        yield f"<h3>Environment</h3>{table((), environment)}"
    yield "</section>"


def _best(record: Record) -> Iterator[str]:
    best = record.snapshot.best
    yield '<section id="recipe"><h2>Best configuration</h2>'
    if best is None:
        yield "<p>No trial has succeeded.</p></section>"
        return
    yield '<div class="recipe"><button type="button">Copy</button>'
    yield f"<pre>{escape(recipe(record.spec, best))}</pre></div>"
    yield f"<h3>Compared with {text.baseline_name(record.snapshot)}</h3>"
    yield _comparison(record, best)
    yield "</section>"


def _comparison(record: Record, best: Trial) -> str:
    """Parameters and metrics of the best trial and of trial 0."""
    first = record.trials[0]
    rows = []
    for name in record.space.parameters:
        if name in best.params or name in first.params:
            rows.append((name, *(text.number(t.params.get(name, "none")) for t in (best, first))))
    for index, goal in enumerate(record.snapshot.goals):
        values = [record.value(trial, index) for trial in (best, first)]
        if values != [trial.metrics.get(goal.metric) for trial in (best, first)]:
            shown = ("none" if value is None else text.number(value) for value in values)
            rows.append((f"{goal.metric} (best report)", *shown))
    for name in best.metrics:
        cells = (
            text.metric(name, t.metrics[name]) if name in t.metrics else "none"
            for t in (best, first)
        )
        rows.append((f"{name} (reported)" if name in record.space.parameters else name, *cells))
    return table(("", f"trial {best.number}, the best", "trial 0"), rows, numbers=(1, 2))


def _trials(record: Record) -> Iterator[str]:
    """The best trials, then the newest without a value."""
    goals = record.snapshot.goals
    scored = [trial for trial, _ in record.scored()]
    known = {trial.number for trial in scored}
    others = [trial for trial in record.trials if trial.number not in known][::-1]
    room = max(MAX_ROWS - len(others[: MAX_ROWS // 4]), 0)
    shown = [*scored[:room], *others[: MAX_ROWS - len(scored[:room])]]
    rows = _rows(record, shown)
    left_out = len(record.trials) - len(shown)
    yield '<section id="trials"><h2>Trials</h2>'
    more = f" To list {left_out} more: automl trials {record.spec.name}" if left_out else ""
    yield f"<p>The best first.{escape(more)}</p>"
    metrics = (goal.metric for goal in goals)
    head = ("trial", "state", *metrics, "time", "memory", "source", "configuration")
    numbers = (0, *range(2, 4 + len(goals)))
    found = table(head, rows, numbers, best=0 if scored else -1)
    yield f'<div class="scroll">{found}</div></section>'


def _rows(record: Record, trials: Sequence[Trial]) -> list[tuple[str, ...]]:
    lines = text.configurations([trial.params for trial in trials])
    return [_row(record, trial, line) for trial, line in zip(trials, lines, strict=True)]


def _row(record: Record, trial: Trial, configuration: str) -> tuple[str, ...]:
    values = [record.value(trial, index) for index in range(len(record.snapshot.goals))]
    return (
        str(trial.number),
        text.state_of(trial, record.snapshot),
        *("-" if value is None else text.number(value) for value in values),
        text.duration(trial.seconds),
        text.memory(trial.peak_memory_bytes),
        trial.source,
        configuration,
    )
