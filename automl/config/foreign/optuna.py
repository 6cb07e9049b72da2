"""A study of Optuna: its distributions as JSON, its journal, or its SQLite file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from automl.errors import UsageError
from search_spaces.validation import show

from .sweep import ForeignSweep, range_of

SQLITE: Final = b"SQLite format 3\0"
_CREATE_STUDY, _SET_PARAM = 0, 5  # kinds of operations in a journal
_VERBS: Final = {1: "minimize", 2: "maximize", "MINIMIZE": "minimize", "MAXIMIZE": "maximize"}
MAX_JOURNAL: Final = 1_000_000  # lines


def distribution(entry: Any) -> Mapping[str, Any] | None:
    """A distribution, from the object or the text of `distribution_to_json`; None if it is none."""
    if isinstance(entry, str) and entry.startswith("{"):
        try:
            entry = json.loads(entry)
        except ValueError:
            return None
    found = isinstance(entry, Mapping) and str(entry.get("name", "")).endswith("Distribution")
    return entry if found and isinstance(entry.get("attributes"), Mapping) else None


def fits(data: Any) -> bool:
    """Whether it is a mapping of names to distributions."""
    return isinstance(data, Mapping) and any(map(distribution, data.values()))


def read(data: Mapping[str, Any]) -> ForeignSweep:
    """The sweep of a mapping of names to distributions."""
    found = ForeignSweep("Optuna")
    for name, entry in data.items():
        given = distribution(entry)
        if given is None:
            raise UsageError(f"{name} is no distribution of Optuna: {show(entry)}")
        _add(found, name, given)
    return _with_goals(found, [])


def read_journal(lines: Iterable[str]) -> ForeignSweep:
    """The sweep of the newest study in a journal (`JournalFileBackend`)."""
    found, directions = ForeignSweep("Optuna"), list[Any]()
    for count, line in enumerate(lines):
        if count >= MAX_JOURNAL:
            raise UsageError(f"a journal has at most {MAX_JOURNAL:,} lines here")
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise UsageError(f"line {count + 1} of the journal is no JSON: {error}") from error
        if not isinstance(entry, Mapping):
            continue
        if entry.get("op_code") == _CREATE_STUDY:
            directions = list(entry.get("directions") or [])
            found = ForeignSweep("Optuna")
        given = distribution(entry.get("distribution"))
        if entry.get("op_code") == _SET_PARAM and given is not None:
            _add(found, str(entry.get("param_name")), given)
    return _with_goals(found, directions)


def read_file(path: Path) -> ForeignSweep:
    """The sweep of the newest study in a SQLite file, which is opened to read only."""
    found = ForeignSweep("Optuna")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
            studies = file.execute("SELECT study_id, study_name FROM studies").fetchall()
            if not studies:
                raise UsageError(f"{path} holds no study of Optuna")
            study, name = max(studies)
            if len(studies) > 1:
                found.notes.append(f"the file holds {len(studies)} studies: {name!r} is the newest")
            directions = file.execute(
                "SELECT direction FROM study_directions WHERE study_id = ? ORDER BY objective",
                (study,),
            ).fetchall()
            rows = file.execute(
                "SELECT DISTINCT param_name, distribution_json FROM trial_params JOIN trials "
                "USING (trial_id) WHERE study_id = ?",
                (study,),
            ).fetchall()
    except sqlite3.Error as error:
        raise UsageError(f"{path} is no storage of Optuna: {error}") from error
    for name, text in rows:
        given = distribution(text)
        if given is not None:
            _add(found, str(name), given)
    found.notes.append(
        f"its trials are not read; `--prior optuna:sqlite:///{path}#STUDY` of `automl sweep` does"
    )
    return _with_goals(found, [direction for (direction,) in directions])


def _with_goals(found: ForeignSweep, directions: list[Any]) -> ForeignSweep:
    verbs = [_VERBS.get(direction, "minimize") for direction in directions] or ["minimize"]
    names = ["value"] if len(verbs) == 1 else [f"value_{i}" for i in range(len(verbs))]
    found.goals = [f"{verb} {name}" for verb, name in zip(verbs, names, strict=True)]
    found.notes.append(
        f"Optuna's values have no names: the goals are {', '.join(found.goals)}; return or report "
        "them under these names, or adapt `goals`"
    )
    return found


def _add(found: ForeignSweep, name: str, given: Mapping[str, Any]) -> None:
    kind, values = str(given["name"]), given["attributes"]
    if kind == "CategoricalDistribution":
        entry: Any = values.get("choices")
        if not isinstance(entry, list):
            raise UsageError(f"the choices of {name} must be a list, got {show(entry)}")
    else:
        low, high = values.get("low"), values.get("high")
        log = bool(values.get("log")) or kind in (
            "LogUniformDistribution",
            "IntLogUniformDistribution",
        )
        step = values.get("step") if values.get("step") is not None else values.get("q")
        entry = range_of(low, high, name, log=log, whole=kind.startswith("Int"))
        is_plain = step is None or log or (kind.startswith("Int") and step == 1)
        if not is_plain and isinstance(entry, dict):
            entry["step"] = step
    if name in found.space and found.space[name] != entry:
        found.notes.append(f"{name} had several ranges in this study: the newest is kept")
    found.add(name, entry)
