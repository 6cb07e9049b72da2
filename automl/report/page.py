"""The report of a sweep: the page of the studio in one HTML file, with the data inside."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from types import SimpleNamespace
from typing import Any, Final

from automl.core import Snapshot, SweepSpec, Trial, TrialState, text
from automl.core.arguments import compact_json, duration
from automl.core.key_kinds import DURATION, keys_of
from automl.errors import UsageError

from .answer import answer
from .recommendation import best_run, recipe
from .record import Record
from .sweep_data import SweepData
from .terminal import state_lines

MODULES: Final = (
    "format.js",
    "dom.js",
    "chart.js",
    "filter.js",
    "api.js",
    "parts.js",
    "rows.js",
    "actions.js",
    "answer.js",
    "progress.js",
    "trials.js",
    "trial.js",
    "explore.js",
    "sweep.js",
    "report.js",
)  # each after those that it imports
_IMPORT: Final = re.compile(r'^import (\{[^\n}]*\}) from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT: Final = re.compile(
    r"^export (?=(?:const|class|function|async function) (\w+))", re.MULTILINE
)
Rows = list[tuple[str, ...]]
APART: Final = ("name", "space")  # settings that the page shows elsewhere
MAX_CURVES: Final = 60  # trials
MAX_POINTS: Final = 60  # of a curve
FRAME_HEIGHT: Final = 640  # pixels
MAX_IN_CELL: Final = 300  # trials
MAX_TRACEBACK: Final = 3000  # characters


def save(sweep: Snapshot | Record, path: str | os.PathLike[str]) -> None:
    """Write the report, which needs no network; an old file is replaced once the new one is whole.

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
        info=SimpleNamespace(created=0.0, host=""),
        commands=(),
        state=SimpleNamespace(limits={}),
    )
    found = answer(record, modelled=modelled)
    view = SweepData(follower, record.snapshot.sweep)
    view.refresh()
    view.answer = found.to_dict()
    if found.recommendation is not None:
        view.answer["recipe"] = recipe(record.spec, best_run(record, found.recommendation))
    about = [*settings(record), *_environment(record)]
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


# the setup: settings and environment


def settings(record: Record) -> Rows:
    """Name and value of each setting that is not empty, then what happened to them."""
    notes: dict[str, list[str]] = {}
    for note in record.notes:
        notes.setdefault(note.kind, []).append(note.message)
    given = ((name, getattr(record.spec, name)) for name in keys_of(SweepSpec))
    rows = [
        *((name.replace("_", " "), _shown(value)) for name, value in given if name not in APART),
        ("prior", _shown(record.spec.knowledge.prior)),
        ("changes of the space", "; ".join(notes.get("space", ()))),
        ("changes of the code", "; ".join(notes.get("code", ()))),
        ("GPUs", "; ".join(notes.get("gpus", ()))),
        ("learned from", str(record.spec.knowledge)),
    ]
    return [row for row in rows if row[1]]


def _environment(record: Record) -> Rows:
    """The commit, the machine and the packages of the sweep."""
    known = record.environment
    hardware = known.get("hardware") or {}
    commit = known.get("git_commit")
    gpus = ", ".join(
        str(gpu.get("name")) for gpu in hardware.get("gpus", ()) or () if isinstance(gpu, Mapping)
    )
    memory = hardware.get("memory_bytes")
    machine = f"{hardware.get('num_cpus', '?')} cores" + (
        f", {text.memory(memory)}" if memory else ""
    )
    changed = " with uncommitted changes" if known.get("git_dirty") else ""
    packages = (known.get("packages") or {}).items()
    rows = [
        ("git commit", f"{commit}{changed}" if commit else ""),
        ("machine", f"{machine}{', ' + gpus if gpus else ''}" if hardware else ""),
        ("system", " ".join(str(known[key]) for key in ("platform", "host") if key in known)),
        ("packages", ", ".join(f"{name} {version}" for name, version in packages)),
    ]
    return [row for row in rows if row[1]]


def _shown(value: Any) -> str:
    """A setting in words; "" if it is empty or off."""
    keys = keys_of(type(value)) if is_dataclass(value) else {}
    if keys:
        parts = ((key, getattr(value, key)) for key in keys)
        return ", ".join(
            f"{key.replace('_', ' ')} "
            + (duration(part) if keys[key].kind is DURATION else _shown(part))
            for key, part in parts
            if part not in (None, "")
        )
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={part}" for key, part in value.items())
    if isinstance(value, tuple):
        return "; ".join(map(str, value))
    return "" if value in (None, False) and value != 0 else str(value)


# a cell of a notebook


def card(snapshot: Snapshot) -> str:
    """A sweep as HTML: its state and answer, then the page of the report."""
    return state_card(snapshot) + frame(snapshot)


def state_card(snapshot: Snapshot) -> str:
    """The state and the best so far; the first error if no trial has succeeded."""
    lines = state_lines(snapshot, snapshot.counts())
    state = "<br>".join(map(escape, lines if snapshot.state == "running" else lines[:1]))
    found = f"<p><b>{_escaped(snapshot.sweep)}</b>: {state}</p>"
    if snapshot.best is not None:
        return found
    failed = snapshot.in_state(TrialState.FAILED)[:1]
    return found + "".join(f"<pre>{_escaped(t.traceback or t.message)}</pre>" for t in failed)


def frame(snapshot: Snapshot) -> str:
    """The page of the report in a frame of its own; "" before a trial has succeeded.

    A notebook that is not trusted leaves the frame out.
    """
    if snapshot.best is None:
        return ""
    data = data_of(Record.of(snapshot), modelled=snapshot.state != "running")
    data["table"]["rows"] = data["table"]["rows"][-MAX_IN_CELL:]
    page = one_file(_escaped(snapshot.sweep), data, kind="bare")
    page = page.replace("&", "&amp;").replace("'", "&#39;")  # quotes inside stay short
    return (
        f'<iframe title="Report of {_escaped(snapshot.sweep)}" '
        'sandbox="allow-scripts allow-downloads" '
        f"style='width:100%;height:{FRAME_HEIGHT}px;border:0' srcdoc='{page}'></iframe>"
    )


def _escaped(raw: str) -> str:
    """Text as HTML, with control characters escaped."""
    return escape(text.printable(raw, keep="\n\t"))
