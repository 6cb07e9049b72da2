"""What was asked: goals, space, budget, and what it ran on, as the tables of the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from automl.core import text
from search_spaces import Choice, Float, Int
from search_spaces.parameters import Parameter

from .record import Record

Rows = list[tuple[str, ...]]


def question(record: Record) -> Rows:
    """What was asked, a line each: name and value."""
    spec, snapshot = record.spec, record.snapshot
    limits = {
        "trials": spec.budget.trials and str(spec.budget.trials),
        "time": spec.budget.time and text.duration(spec.budget.time),
        "worker time": spec.budget.worker_time and text.duration(spec.budget.worker_time),
        "target": spec.budget.target is not None and text.number(spec.budget.target),
    }
    budget = ", ".join(
        f"{value} {key}" if key == "trials" else f"{key} {value}"
        for key, value in limits.items()
        if value
    )
    used = f"{len(record.trials)} trials, {text.duration(snapshot.seconds)}"
    rows = [
        ("goal" if len(spec.goals) == 1 else "goals", "; ".join(map(str, spec.goals))),
        ("constraints", "; ".join(map(str, spec.constraints))),
        ("what is trained", spec.workload or "an objective of one's own"),
        ("data", _flat(spec.data)),
        ("fixed options", _flat(spec.fixed)),
        ("budget", f"{budget or 'none'} (used: {used})"),
        ("suggester, stopper, seed", f"{spec.suggester}, {spec.stopper}, {spec.seed}"),
        ("enqueued or added", _sources(record)),
        (
            "pinned or narrowed",
            "; ".join(f"{limit} (from trial {first} on)" for first, limit in record.limits),
        ),
        ("beliefs about good values", _beliefs(record)),
        (
            "from an earlier sweep",
            "; ".join(note.message for note in record.notes if note.kind == "transfer"),
        ),
    ]
    return [row for row in rows if row[1]]


def space(record: Record) -> Rows:
    """A line a parameter: name, what may be tried, default, what it affects, when it exists."""
    rows: Rows = []
    for name, parameter in record.space.parameters.items():
        default = "" if parameter.default is None else text.number(parameter.default)
        affects = ", ".join(
            kind for kind in ("quality", "speed", "memory") if kind in parameter.affects
        )
        when = " and ".join(
            f"{k} is {' or '.join(map(text.number, v))}" for k, v in parameter.when.items()
        )
        rows.append((name, choices(parameter), default, affects, when))
    return rows


def environment(record: Record) -> Rows:
    """Where the sweep ran."""
    known = record.environment
    hardware = known.get("hardware") or {}
    commit = known.get("git_commit")
    gpus = ", ".join(
        str(gpu.get("name")) for gpu in hardware.get("gpus", ()) or () if isinstance(gpu, Mapping)
    )
    machine = f"{hardware.get('num_cpus', '?')} cores, {text.memory(hardware.get('memory_bytes'))}"
    rows = [
        (
            "git commit",
            f"{commit}{' with changes' if known.get('git_dirty') else ''}" if commit else "",
        ),
        ("machine", f"{machine}{', ' + gpus if gpus else ''}" if hardware else ""),
        ("system", " ".join(str(known[key]) for key in ("platform", "host") if key in known)),
        (
            "packages",
            ", ".join(
                f"{name} {version}" for name, version in (known.get("packages") or {}).items()
            ),
        ),
    ]
    return [row for row in rows if row[1]]


def choices(parameter: Parameter) -> str:
    """What may be tried of a parameter, in words."""
    if isinstance(parameter, Choice):
        return ", ".join(map(text.number, parameter.choices))
    assert isinstance(parameter, Float | Int), "there are three kinds of parameters"
    scale = ", logarithmic" if parameter.log else ""
    return f"{text.number(parameter.low)} to {text.number(parameter.high)}{scale}"


def _flat(section: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in section.items())


def _beliefs(record: Record) -> str:
    from automl.suggesters.user_prior import UserPrior

    return "; ".join(
        f"{name} {belief}"
        for name, belief in UserPrior(record.space, record.spec.beliefs).by_name.items()
    )


def _sources(record: Record) -> str:
    """Trials that a person gave."""
    given = [
        trial for trial in record.trials if trial.source in ("enqueued", "added", "transferred")
    ]
    return ", ".join(f"trial {trial.number}" for trial in given[:20]) + (
        ", ..." if len(given) > 20 else ""
    )
