"""The report of a sweep: the page of the studio in one HTML file, with the data inside."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from types import SimpleNamespace
from typing import Any, Final

from automl.core import Snapshot, Trial, text
from automl.core.plain_data import compact_json
from automl.errors import UsageError

from . import setup
from .answer import answer
from .caveats import caveats
from .recipe import recipe
from .recommendation import best_run
from .record import Record
from .sweep_data import SweepData

MODULES: Final = (
    "format.js",
    "dom.js",
    "scales.js",
    "marks.js",
    "chart.js",
    "filter.js",
    "api.js",
    "parts.js",
    "table.js",
    "rows.js",
    "actions.js",
    "answer.js",
    "progress.js",
    "trials.js",
    "log.js",
    "trial.js",
    "explore.js",
    "sweep.js",
    "report.js",
)  # each after those that it imports
_IMPORT: Final = re.compile(r'^import (\{[^\n}]*\}) from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT: Final = re.compile(
    r"^export (?=(?:const|class|function|async function) (\w+))", re.MULTILINE
)
MAX_CURVES: Final = 60  # trials
MAX_POINTS: Final = 60  # of a curve
MAX_TRACEBACK: Final = 3000  # characters


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
    """The report as an HTML page that needs no network."""
    return one_file(escape(f"{record.snapshot.sweep}: report of a sweep"), data_of(record))


def data_of(record: Record, *, modelled: bool = True) -> dict[str, Any]:
    """What the studio would answer to the page; `modelled` as in `answer`."""
    follower: Any = SimpleNamespace(
        refresh=tuple,
        snapshot=lambda: record.snapshot,
        epoch=0,
        created=0.0,
        host="",
        commands=(),
        state=SimpleNamespace(limits={}),
    )
    found = answer(record, modelled=modelled)
    view = SweepData(follower, record.snapshot.sweep)
    view.refresh()
    view.answer = found.to_dict()
    if record.confirmation is not None:
        view.answer["confirmation"] = str(record.confirmation)
    if found.recommendation is not None:
        view.answer["recipe"] = recipe(record.spec, best_run(record, found.recommendation))
    view.warnings = list(caveats(record.snapshot, record.space))
    about = [*setup.settings(record), *setup.environment(record)]
    return {
        "page": {**view.describe(), "setup": about},
        "table": view.rows(),
        "curves": _curves(record),
        "tracebacks": _tracebacks(record.trials),
    }


def _curves(record: Record) -> Mapping[int, Any]:
    """The reports of the best trials and of the latest ones, for the metrics of the goals."""
    metrics = [goal.metric for goal in record.snapshot.goals]
    ordered = [*(trial for trial, _ in record.scored()), *reversed(record.trials)]
    reported = {trial.number: trial for trial in ordered if trial.reports}
    chosen = list(reported.values())[:MAX_CURVES]
    return {trial.number: curves(trial, metrics, MAX_POINTS) for trial in chosen}


def curves(trial: Trial, metrics: Sequence[str] | None, most: int) -> dict[str, Any]:
    """Of each metric: steps, seconds, attempts and values, thinned if there are very many."""
    names = dict.fromkeys(name for point in trial.reports for name in point.metrics)
    found = {}
    for name in names if metrics is None else [one for one in metrics if one in names]:
        kept = text.thinned([p for p in trial.reports if name in p.metrics], most)
        found[name] = {
            "steps": [point.step for point in kept],
            "seconds": [round(point.seconds, 3) for point in kept],
            "attempts": [point.attempt for point in kept],
            "values": [point.metrics[name] for point in kept],
        }
    return found


def _tracebacks(trials: Sequence[Trial]) -> Mapping[int, str]:
    """The traceback of the first trial of each error."""
    first: dict[tuple[str, ...], Trial] = {}
    for trial in trials:
        if trial.failure and trial.traceback:
            first.setdefault(trial.error, trial)
    return {trial.number: trial.traceback[-MAX_TRACEBACK:] for trial in first.values()}


def one_file(title: str, data: Mapping[str, Any], kind: str = "whole") -> str:
    """One HTML file of the pieces in `assets`, which the studio serves as modules.

    Args:
        title: as HTML.
        data: what the page shows.
        kind: "bare" for a page that is a part of another one.
    """
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    inside = compact_json(data).replace("<", "\\u003c")
    parts = {"title": title, "kind": kind, "css": asset("style.css"), "js": script}
    return Template(asset("report.html")).substitute(parts, data=inside, digest=digest)


def asset(name: str) -> str:
    """The text of a file in `assets`."""
    return (resources.files("automl.report") / "assets" / name).read_text(encoding="utf-8")


def _script() -> str:
    """The modules as one script, because a file that is opened from a disk cannot import."""
    text = "".join(map(_scope, MODULES))
    return f'"use strict";\n(() => {{\n{text}}})();'.replace("</script", "<\\/script")


def _scope(name: str) -> str:
    """A module as an object of what it exports, so that names of modules do not meet."""
    text = asset(name)
    names = ", ".join(_EXPORT.findall(text))
    body = _EXPORT.sub("", _IMPORT.sub(r"const \1 = \2_js;", text))
    return f"const {name.replace('.', '_')} = (() => {{\n{body}\nreturn {{ {names} }};\n}})();\n"
