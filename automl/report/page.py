"""The report of a sweep: one HTML file that works offline."""

import json
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from automl.core import Snapshot, Trial, text
from automl.core.durations import duration
from automl.core.plain_data import json_data
from automl.core.standings import Standings
from automl.errors import UsageError

from . import bundle, conclusion, setup, summary
from .effects import Insight, insights_of
from .figures import ORDER, draw
from .plotting import Panel, escape, rounded
from .recipe import recipe
from .recommendation import best_run
from .record import Record

MAX_ROWS: Final = 200
WIDE: Final = frozenset({"parallel", "dependence", "timeline"})  # panels over both columns


def save(sweep: Snapshot | Record, path: str | os.PathLike[str]) -> None:
    """Write the report; an existing file is replaced once the new one is complete.

    Raises:
        UsageError: the file cannot be written.
    """
    record = sweep if isinstance(sweep, Record) else Record.of(sweep)
    target = Path(path)
    page = render(record)
    try:
        draft = target.parent / f".{target.name}.{uuid.uuid4().hex}"
        try:
            draft.write_text(page, encoding="utf-8")
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}") from error


def render(record: Record) -> str:
    """The report as an HTML page.

    Result, certainty and the course of the sweep come first; then the contents; then warnings, the
    best configuration, the other panels in the order of `figures.ORDER`, setup, trials.
    """
    insights = insights_of(record)
    course, *panels = (draw(name, record, insights) for name in ORDER)
    body = [
        *_warnings(record, insights),
        '<div id="select" class="bar picked"></div>',
        '<div class="panels">',
        *_best(record, insights),
        *_front(record),
        *(part for panel in panels for part in panel_html(panel)),
        *_setup(record),
        *_trials(record),
        "</div>",
        "<footer>Written by automl report. The page needs no network.</footer>",
        f'<script type="application/json" id="trials-data">{as_json(_data(record))}</script>',
    ]
    title = f"{escape(record.snapshot.sweep)}: report of a sweep"
    opening = [
        "<header>",
        *_opening(record, insights),
        *panel_html(course),
        "</header>",
        _navigation(panels),
    ]
    return bundle.page(title, body, opening)


def panel_html(panel: Panel) -> Iterator[str]:
    """A panel as HTML: a place for each figure, and its data."""
    wide = panel.key in WIDE or len(panel.figures) > 2
    kind = "" if panel.figures else " empty"
    yield f'<section id="{panel.key}" class="panel{" wide" if wide else ""}{kind}">'
    yield f"<h2>{escape(panel.title)}</h2><p>{escape(panel.caption)}</p>"
    many = len(panel.figures) > 2 and panel.key not in WIDE
    yield f'<div class="{"many" if many else "few"}">'
    for i, figure in enumerate(panel.figures):
        key, height = f"{panel.key}-{i}", figure["layout"]["height"]
        yield f'<div class="figure" id="{key}" data-spec="{key}-spec" '
        yield f'style="min-height:{height}px"></div>'
        yield f'<script type="application/json" id="{key}-spec">{as_json(figure)}</script>'
    yield "</div></section>"


def _navigation(panels: Sequence[Panel]) -> str:
    links = [
        ("recipe", "Best configuration"),
        *((panel.key, panel.title) for panel in panels if panel.figures),
        ("setup", "Setup"),
        ("trials", "Trials"),
    ]
    found = "".join(f'<li><a href="#{key}">{escape(name)}</a></li>' for key, name in links)
    theme = '<li><button id="theme" type="button">Theme: auto</button></li>'
    return f'<nav class="side" aria-label="Sections"><ul>{found}{theme}</ul></nav>'


def _opening(record: Record, insights: Sequence[Insight]) -> Iterator[str]:
    snapshot = record.snapshot
    count = f"{len(record.trials)} trial{'s' if len(record.trials) != 1 else ''}"
    outcomes = text.outcomes(snapshot, Standings.of(snapshot).counts())
    state = f"{snapshot.state}, {count} in {duration(snapshot.seconds)}"
    yield f'<h1 id="result">{escape(snapshot.sweep)}</h1>'
    yield f'<p class="soft">{escape(", ".join([state, *outcomes]))}</p>'
    if advice := conclusion.recommendation(record, insights):
        yield f'<p class="headline">{escape(advice)}</p>'
    yield f'<p class="headline">{escape(summary.headline(snapshot))}</p>'
    yield f'<p class="certainty">{escape(conclusion.certainty(record, insights))}</p>'


def _warnings(record: Record, insights: Sequence[Insight]) -> Iterator[str]:
    found = "".join(f"<li>{escape(one)}</li>" for one in conclusion.warnings(record, insights))
    if found:
        yield '<section class="panel warn warnings" id="warnings"><h2>Warnings</h2>'
        yield f"<ul>{found}</ul></section>"


def _data(record: Record) -> dict[str, Any]:
    """What a filter of trials can name, and its values."""
    params, goals = list(record.space.parameters), record.snapshot.goals
    metrics = [n for t in record.trials[:50] for n in t.metrics]
    others = [n for n in dict.fromkeys(metrics) if n not in {goal.metric for goal in goals}]
    names = ["number", "state", "failure", *params, *others[:30], *(g.metric for g in goals)]
    rows = [
        [
            trial.number,
            str(trial.state),
            trial.failure,
            *(json_data(trial.params.get(name)) for name in params),
            *rounded(trial.metrics.get(name) for name in others[:30]),
            *rounded(record.value(trial, index) for index in range(len(goals))),
        ]
        for trial in record.trials
    ]
    return {"names": names, "rows": rows}


def _setup(record: Record) -> Iterator[str]:
    yield '<section id="setup" class="panel wide"><h2>Setup</h2>'
    yield scrolled(table((), setup.settings(record)), "Settings")
    yield "<h3>Search space</h3>"
    header = ("parameter", "values", "default", "affects", "active if")
    yield scrolled(table(header, setup.search_space(record)), "Search space")
    for constraint in record.space.constraints:
        yield f"<p>Constraint: {escape(str(constraint))}.</p>"
    if environment := setup.environment(record):
        yield f"<h3>Environment</h3>{scrolled(table((), environment), 'Environment')}"
    yield "</section>"


def _best(record: Record, insights: Sequence[Insight]) -> Iterator[str]:
    advice = conclusion.advice(record, insights)
    yield '<section id="recipe" class="panel"><h2>Best configuration</h2>'
    if advice is None:
        yield "<p>No trial has succeeded.</p></section>"
        return
    best = best_run(record, advice)
    yield '<div class="recipe"><button type="button">Copy</button>'
    yield f'<pre tabindex="0">{escape(recipe(record.spec, best))}</pre></div>'
    yield f"<h3>Compared with {text.baseline_name(record.snapshot)}</h3>"
    yield scrolled(_comparison(record, best), "The best configuration and trial 0")
    yield "</section>"


def _comparison(record: Record, best: Trial) -> str:
    """Parameters and metrics of the recommended trial and of trial 0."""
    first = record.trials[0]
    role = "the best" if best == record.snapshot.best else "recommended"
    rows = [
        *summary.compared_params(best, first, record.space),
        *summary.compared_metrics(record.snapshot, best, first),
    ]
    return table(("", f"trial {best.number}, {role}", "trial 0", "change"), rows, (1, 2, 3))


def _front(record: Record) -> Iterator[str]:
    """The configurations on the Pareto front, if there are several goals."""
    front = record.snapshot.pareto[:MAX_ROWS]
    if len(record.snapshot.goals) < 2 or not front:
        return
    names = [goal.metric for goal in record.snapshot.goals]
    rows = [(*row[:1], *row[2 : 2 + len(names)], row[-1]) for row in trial_rows(record, front)]
    numbers = range(1 + len(names))
    found = table(("trial", *names, "configuration"), rows, tuple(numbers))
    yield '<section id="front" class="panel"><h2>On the Pareto front</h2>'
    yield f"{scrolled(found, 'Configurations on the Pareto front')}</section>"


def _trials(record: Record) -> Iterator[str]:
    """The best trials, then the newest without a value."""
    goals = record.snapshot.goals
    scored = [trial for trial, _ in record.scored()]
    known = {trial.number for trial in scored}
    others = [trial for trial in record.trials if trial.number not in known][::-1]
    room = max(MAX_ROWS - len(others[: MAX_ROWS // 4]), 0)
    shown = [*scored[:room], *others[: MAX_ROWS - len(scored[:room])]]
    rows = trial_rows(record, shown)
    left_out = len(record.trials) - len(shown)
    yield '<section id="trials" class="panel wide"><h2>Trials</h2>'
    more = f" To list {left_out} more: automl trials {record.spec.name}" if left_out else ""
    yield f"<p>The best first.{escape(more)}</p>"
    metrics = (goal.metric for goal in goals)
    header = ("trial", "state", *metrics, "time", "memory", "source", "configuration")
    numbers = (0, *range(2, 4 + len(goals)))
    found = table(header, rows, numbers, 0 if scored else -1, [trial.number for trial in shown])
    yield f"{scrolled(found, 'Table of trials')}</section>"


def trial_rows(record: Record, trials: Sequence[Trial]) -> list[tuple[str, ...]]:
    """The cells of the table of trials."""
    lines = text.configurations([trial.params for trial in trials])
    return [_row(record, trial, line) for trial, line in zip(trials, lines, strict=True)]


def _row(record: Record, trial: Trial, configuration: str) -> tuple[str, ...]:
    values = [record.value(trial, index) for index in range(len(record.snapshot.goals))]
    return (
        str(trial.number),
        text.state_of(trial, record.snapshot),
        *("-" if value is None else text.number(value) for value in values),
        duration(trial.seconds),
        text.memory(trial.peak_memory_bytes),
        text.origin_of(trial),
        configuration,
    )


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
    top = f"<thead>{_table_row('th', header, numbers)}</thead>" if header else ""
    body = "".join(
        _table_row("td", row, numbers, "best" if i == best else "", trials[i] if trials else None)
        for i, row in enumerate(rows)
    )
    return f"<table>{top}<tbody>{body}</tbody></table>"


def scrolled(content: str, label: str) -> str:
    """A part of the page that scrolls by itself if it is too wide, by keyboard too."""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">'
        f"{content}</div>"
    )


def _table_row(
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
