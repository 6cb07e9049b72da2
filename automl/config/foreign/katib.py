"""An experiment of Katib: its Kubernetes manifest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from automl.core.resuming import shell_line
from automl.errors import UsageError
from search_spaces.validation import show

from .sweep import ForeignSweep, number, range_of

_ALGORITHMS: Final = {
    "bayesianoptimization": "bayes",
    "random": "random",
    "sobol": "sobol",
    "tpe": "tpe",
    "multivariate-tpe": "tpe",
}
_PLACE: Final = re.compile(r"\$\{trialParameters\.([^}]+)\}")
_READ: Final = (
    *("objective", "algorithm", "parallelTrialCount", "maxTrialCount", "maxFailedTrialCount"),
    *("parameters", "trialTemplate", "earlyStopping"),
)


def fits(data: Any) -> bool:
    """Whether it is such a file."""
    spec = data.get("spec") if isinstance(data, Mapping) else None
    return isinstance(spec, Mapping) and data.get("kind") == "Experiment" and "parameters" in spec


def read(data: Mapping[str, Any]) -> ForeignSweep:
    """The sweep; raises UsageError if a value makes no sense."""
    found, spec = ForeignSweep("Katib"), data["spec"]
    names = {}
    for entry in _items(spec["parameters"], "spec.parameters"):
        given = str(entry.get("name"))
        names[given] = given.lstrip("-")
        _add(found, names[given], entry)
    objective = spec.get("objective")
    if isinstance(objective, Mapping) and objective.get("objectiveMetricName"):
        verb = "maximize" if objective.get("type") == "maximize" else "minimize"
        found.goals = [f"{verb} {objective['objectiveMetricName']}"]
    _settings(found, spec, objective)
    _command(found, spec.get("trialTemplate"), names)
    found.unread(spec, _READ)
    return found


def _items(given: Any, place: str) -> list[Mapping[str, Any]]:
    if not isinstance(given, Sequence) or not all(isinstance(item, Mapping) for item in given):
        raise UsageError(f"{place} must be a list of objects, got {show(given)}")
    return list(given)


def _add(found: ForeignSweep, name: str, entry: Mapping[str, Any]) -> None:
    kind, feasible = entry.get("parameterType"), entry.get("feasibleSpace")
    if not isinstance(feasible, Mapping):
        raise UsageError(f"the parameter {name} needs a feasibleSpace, got {show(feasible)}")
    low, high = feasible.get("min"), feasible.get("max")
    log = str(feasible.get("distribution", "uniform")) in ("logUniform", "logNormal")
    if kind in ("categorical", "discrete"):
        values = feasible.get("list")
        if not isinstance(values, list):
            raise UsageError(f"the parameter {name} needs a list, got {show(values)}")
        if kind == "discrete":
            values = [number(value, f"a value of {name}") for value in values]
        found.add(name, values)
    elif kind in ("double", "int"):
        if str(feasible.get("distribution")) in ("normal", "logNormal"):
            found.notes.append(f"{name}: only the bounds of its normal distribution are kept")
        step = None if log or feasible.get("step") in (None, "") else feasible["step"]
        if log and feasible.get("step"):
            found.notes.append(f"{name}: its step is not carried over on a logarithmic scale")
        found.add(name, _range(low, high, name, log, step, whole=kind == "int"))
    else:
        raise UsageError(f"the parameter {name} has an unknown parameterType {show(kind)}")


def _range(low: Any, high: Any, name: str, log: bool, step: Any, *, whole: bool) -> Any:
    entry = range_of(low, high, name, log=log, whole=whole)
    if step is not None and isinstance(entry, dict):
        entry["step"] = number(step, f"the step of {name}")
        if whole and entry["step"] == 1:
            del entry["step"]
    return entry


def _settings(found: ForeignSweep, spec: Mapping[str, Any], objective: Any) -> None:
    budget: dict[str, Any] = {}
    if spec.get("maxTrialCount") is not None:
        budget["trials"] = int(number(spec["maxTrialCount"], "spec.maxTrialCount"))
    if isinstance(objective, Mapping) and objective.get("goal") is not None:
        budget["target"] = number(objective["goal"], "spec.objective.goal")
    if budget:
        found.settings["budget"] = budget
    if spec.get("parallelTrialCount") is not None:
        found.settings["workers"] = int(number(spec["parallelTrialCount"], "parallelTrialCount"))
    algorithm = spec.get("algorithm")
    name = algorithm.get("algorithmName") if isinstance(algorithm, Mapping) else None
    if name in _ALGORITHMS:
        found.settings["suggester"] = _ALGORITHMS[name]
    elif name is not None:
        found.notes.append(f"the algorithm {name} has no counterpart: bayes is used")
    if isinstance(algorithm, Mapping) and algorithm.get("algorithmSettings"):
        found.notes.append("the settings of the algorithm are not carried over")
    stopping = spec.get("earlyStopping")
    if isinstance(stopping, Mapping):
        found.settings["stopper"] = "median"
        found.notes.append("earlyStopping: the stopper median learns by itself when to begin")
    if spec.get("maxFailedTrialCount") is not None:
        found.notes.append("maxFailedTrialCount: here failures end a sweep if all have one cause")


def _command(found: ForeignSweep, template: Any, names: Mapping[str, str]) -> None:
    """The command of the first container, with braces for the parameters."""
    if not isinstance(template, Mapping):
        return
    references = {
        str(item.get("name")): str(item.get("reference", ""))
        for item in _items(template.get("trialParameters", []), "trialParameters")
    }
    words = _first_command(template.get("trialSpec"))
    if not words:
        found.notes.append("the trialTemplate has no command of a container: name your program")
        return

    def filled(word: str) -> str:
        parts = _PLACE.split(word)  # text, name, text, name, ...
        for i, part in enumerate(parts):
            name = references.get(part, part)
            is_text = i % 2 == 0
            parts[i] = (
                part.replace("{", "{{").replace("}", "}}")
                if is_text
                else f"{{{names.get(name, name)}}}"
            )
        return "".join(parts)

    found.command = shell_line(list(map(filled, words)))
    found.notes.append("image, resources and volumes of the trialTemplate are not carried over")


def _first_command(spec: Any) -> list[str]:
    """The words of the first container below a manifest; empty if there is none."""
    if isinstance(spec, Mapping):
        containers = spec.get("containers")
        if isinstance(containers, list) and containers and isinstance(containers[0], Mapping):
            first = containers[0]
            words = [*(first.get("command") or []), *(first.get("args") or [])]
            return [str(word) for word in words]
        for inner in spec.values():
            if words := _first_command(inner):
                return words
    return []
