"""The setup of a sweep: settings and environment, as tables of the report."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

from automl.core import Constraint, Goal, SweepSpec, text
from automl.core.durations import duration
from automl.core.keys import DURATION, keys_of

from .record import Record

Rows = list[tuple[str, ...]]
APART = ("name", "space")  # settings that the page shows elsewhere


def settings(record: Record) -> Rows:
    """Name and value of each setting that is not empty, then what happened to them."""
    notes: dict[str, list[str]] = {}
    for note in record.notes:
        notes.setdefault(note.kind, []).append(note.message)
    given = ((name, getattr(record.spec, name)) for name in keys_of(SweepSpec))
    rows = [
        *((name.replace("_", " "), _shown(value)) for name, value in given if name not in APART),
        ("aspects guessed from names", _guesses(record)),
        ("enqueued or added", _given(record)),
        (
            "pinned or narrowed",
            "; ".join(f"{limit} (from trial {first} on)" for first, limit in record.limits),
        ),
        ("changes of the space", "; ".join(notes.get("space", ()))),
        ("GPUs", "; ".join(notes.get("gpus", ()))),
        ("usual values", _usual(record)),
        ("learned from", record.spec.learned_from),
    ]
    return [row for row in rows if row[1]]


def environment(record: Record) -> Rows:
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
    if is_dataclass(value):
        keys = keys_of(type(value))
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


def _guesses(record: Record) -> str:
    """The aspects of metrics that nobody has declared."""
    used: tuple[Goal | Constraint, ...] = (*record.spec.goals, *record.spec.constraints)
    guessed = {
        one.metric: " and ".join(sorted(one.aspects)) for one in used if one.declared is None
    }
    found = ", ".join(f"`{name}` measures {aspects}" for name, aspects in guessed.items())
    return f"{found} (to declare them: metrics=)" if found else ""


def _usual(record: Record) -> str:
    from automl.suggesters.knowledge import usual_values

    known = record.spec.knowledge == "auto"
    return usual_values(record.space, record.spec.beliefs) if known else ""


def _given(record: Record) -> str:
    """Trials that the user gave."""
    sources = ("enqueued", "added", "transferred")
    given = [f"trial {trial.number}" for trial in record.trials if trial.source in sources]
    return ", ".join([*given[:20], "..."] if len(given) > 20 else given)
