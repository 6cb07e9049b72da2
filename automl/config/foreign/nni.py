"""A search space of NNI: a JSON file, or the `searchSpace` of an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from automl.errors import UsageError
from search_spaces.validation import show

from .sweep import ForeignSweep, bell, bell_note, number, range_of

_SPACES: Final = ("searchSpace", "search_space")
_READ: Final = (
    *(*_SPACES, "trialCommand", "trialConcurrency", "maxTrialNumber", "maxExperimentDuration"),
    *("tuner", "experimentName", "trialCodeDirectory"),
)


def fits(data: Any) -> bool:
    """Whether it is such a file."""
    if not isinstance(data, Mapping) or not data:
        return False
    space = next((data[key] for key in _SPACES if key in data), data)
    return isinstance(space, Mapping) and any(
        isinstance(entry, Mapping) and "_type" in entry for entry in space.values()
    )


def read(data: Mapping[str, Any]) -> ForeignSweep:
    """The sweep; raises UsageError if a value makes no sense."""
    found = ForeignSweep("NNI")
    inner = next((data[key] for key in _SPACES if key in data), None)
    for name, entry in (data if inner is None else inner).items():
        _add(found, name, entry, {})
    options: Mapping[str, Any] = {}
    if inner is not None:
        options = _experiment(found, data)
    verb = "maximize" if options.get("optimize_mode") == "maximize" else "minimize"
    found.goals = [f"{verb} default"]
    found.notes.append(
        f"the goal is a guess ({found.goals[0]}): NNI's file does not name a metric; use the name "
        "that your program prints or reports"
    )
    return found


def _add(found: ForeignSweep, name: str, entry: Any, when: Mapping[str, Any]) -> None:
    """Add a parameter, and those that exist with one of its choices only."""
    if not isinstance(entry, Mapping) or "_type" not in entry:
        raise UsageError(f"{name} must have the keys _type and _value, got {show(entry)}")
    kind, values = str(entry["_type"]), entry.get("_value")
    if not isinstance(values, list) or not values:
        raise UsageError(f"{name}._value must be a list, got {show(values)}")
    nested = [value for value in values if isinstance(value, Mapping) and "_name" in value]
    if kind == "choice" and nested:
        made: Any = [value["_name"] if value in nested else value for value in values]
    elif kind == "choice":
        made = list(values)
    else:
        made = _range(found, name, kind, values)
    if when:
        made = made if isinstance(made, dict) else {"choices": made}
        made = {**made, "when": dict(when)}
    found.add(name, made)
    for value in nested:
        for key, inner in value.items():
            if key != "_name":
                _add(found, f"{name}.{key}", inner, {name: value["_name"]})


def _range(found: ForeignSweep, name: str, kind: str, values: list[Any]) -> Any:
    step = None
    if kind.startswith("q"):
        kind, step = kind[1:], number(values[2] if len(values) > 2 else None, f"q of {name}")
    if len(values) < 2:
        raise UsageError(f"{name}._value needs two numbers, got {show(values)}")
    low, high = values[0], values[1]
    if kind in ("normal", "lognormal"):
        found.notes.append(bell_note(name))
        return bell(low, high, name, log=kind == "lognormal", step=step)
    if kind == "randint":  # the upper end is not possible there
        return range_of(low, number(high, f"the upper bound of {name}") - 1, name, whole=True)
    if kind not in ("uniform", "loguniform"):
        raise UsageError(f"{name} has an unknown _type {show(kind)}")
    if kind == "loguniform" and step is not None:
        found.notes.append(f"{name}: steps of {step} are not carried over on a logarithmic scale")
        return range_of(low, high, name, log=True, whole=step == 1)
    return range_of(low, high, name, log=kind == "loguniform", step=step)


def _experiment(found: ForeignSweep, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Read what stands beside the space; the options of its tuner."""
    budget: dict[str, Any] = {}
    if data.get("maxTrialNumber") is not None:
        budget["trials"] = int(number(data["maxTrialNumber"], "maxTrialNumber"))
    if data.get("maxExperimentDuration") is not None:
        budget["time"] = str(data["maxExperimentDuration"])
    if budget:
        found.settings["budget"] = budget
    if data.get("trialConcurrency") is not None:
        found.settings["workers"] = int(number(data["trialConcurrency"], "trialConcurrency"))
    if data.get("trialCommand"):
        found.command = f"{data['trialCommand']} {{params}}"
        found.notes.append(
            "a trial of NNI asks for its parameters; here they come as arguments --NAME=VALUE"
        )
    found.unread(data, _READ)
    tuner = data.get("tuner")
    if not isinstance(tuner, Mapping):
        return {}
    found.notes.append(f"the tuner {tuner.get('name')} is not carried over: bayes is used")
    options = tuner.get("classArgs")
    return options if isinstance(options, Mapping) else {}
