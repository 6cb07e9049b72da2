"""The setup of a sweep: settings, search space and environment, as tables of the report."""

from collections.abc import Mapping
from typing import Any

from automl.core import Constraint, Goal, text
from search_spaces import Choice, Float, Int, Parameter

from .record import Record

Rows = list[tuple[str, ...]]


def settings(record: Record) -> Rows:
    """Name and value of each setting that is not empty."""
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
        ("aspects guessed from names", _guesses(record)),
        ("workload", spec.workload or "the user's objective"),
        ("data", _flat(spec.data)),
        ("fixed options", _flat(spec.fixed)),
        ("budget", f"{budget or 'none'} (used: {used})"),
        (
            "suggester, stopper, seed",
            f"{_with_options(spec.suggester, spec.suggester_options)}, "
            f"{_with_options(spec.stopper, spec.stopper_options)}, {spec.seed}",
        ),
        ("enqueued or added", _given(record)),
        (
            "pinned or narrowed",
            "; ".join(f"{limit} (from trial {first} on)" for first, limit in record.limits),
        ),
        ("beliefs about good values", _beliefs(record)),
        ("changes of the space", "; ".join(n.message for n in record.notes if n.kind == "space")),
        ("GPUs", "; ".join(note.message for note in record.notes if note.kind == "gpus")),
        ("usual values", _usual(record)),
        ("earlier sweeps", spec.learned_from),
    ]
    return [row for row in rows if row[1]]


def search_space(record: Record) -> Rows:
    """A row for each parameter: name, values, default, what it affects, its condition."""
    rows: Rows = []
    for name, parameter in record.space.parameters.items():
        default = text.number(parameter.default) if parameter.has_default else ""
        affects = ", ".join(
            aspect for aspect in ("quality", "speed", "memory") if aspect in parameter.affects
        )
        when = " and ".join(
            f"{k} is {' or '.join(map(text.number, v))}" for k, v in parameter.when.items()
        )
        rows.append((name, _values(parameter), default, affects, when))
    return rows


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


def _values(parameter: Parameter) -> str:
    if isinstance(parameter, Choice):
        return ", ".join(map(text.number, parameter.choices))
    assert isinstance(parameter, Float | Int), "there are three kinds of parameters"
    scale = ", logarithmic" if parameter.log else ""
    steps = f", in steps of {text.number(parameter.step)}" if "step" in parameter.domain() else ""
    return f"{text.number(parameter.low)} to {text.number(parameter.high)}{steps}{scale}"


def _with_options(name: str, options: Mapping[str, Any]) -> str:
    shown = ", ".join(f"{key} {value}" for key, value in options.items())
    return f"{name} ({shown})" if shown else name


def _flat(section: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in section.items())


def _guesses(record: Record) -> str:
    """The aspects of metrics that nobody has declared."""
    used: tuple[Goal | Constraint, ...] = (*record.spec.goals, *record.spec.constraints)
    guessed = {
        one.metric: " and ".join(sorted(one.aspects)) for one in used if one.declared is None
    }
    found = ", ".join(f"`{name}` measures {aspects}" for name, aspects in guessed.items())
    return f"{found} (to declare them: metrics=)" if found else ""


def _beliefs(record: Record) -> str:
    from automl.suggesters.user_prior import UserPrior

    return "; ".join(
        f"{name} {prior}"
        for name, prior in UserPrior(record.space, record.spec.beliefs).by_name.items()
    )


def _usual(record: Record) -> str:
    from automl.suggesters.knowledge import usual_values

    known = record.spec.knowledge == "auto"
    return usual_values(record.space, record.spec.beliefs) if known else ""


def _given(record: Record) -> str:
    """Trials that the user gave."""
    sources = ("enqueued", "added", "transferred")
    given = [f"trial {trial.number}" for trial in record.trials if trial.source in sources]
    return ", ".join([*given[:20], "..."] if len(given) > 20 else given)
