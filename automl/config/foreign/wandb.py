"""A sweep of Weights & Biases: the YAML file of `wandb sweep`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from automl.core.resuming import shell_line
from automl.errors import UsageError
from search_spaces.validation import show

from .sweep import ForeignSweep, bell, bell_note, number, range_of

_METHODS: Final = {"bayes": "bayes", "random": "random"}
_WORDS: Final = {
    "${env}": "",
    "${interpreter}": "python",
    "${args}": "{params}",
    "${args_no_boolean_flags}": "{params}",
    "${args_no_hyphens}": "{key=value}",
    "${args_json_file}": "{config}",
}
_READ: Final = (
    *("program", "method", "metric", "parameters", "early_terminate", "run_cap", "command"),
    *("name", "project", "entity", "description"),
)


def fits(data: Any) -> bool:
    """Whether it is such a file."""
    return isinstance(data, Mapping) and isinstance(data.get("parameters"), Mapping)


def read(data: Mapping[str, Any]) -> ForeignSweep:
    """The sweep; raises UsageError if a value makes no sense."""
    found = ForeignSweep("Weights & Biases")
    _parameters(found, data["parameters"], "")
    metric = data.get("metric")
    if isinstance(metric, Mapping) and metric.get("name"):
        verb = "maximize" if metric.get("goal") == "maximize" else "minimize"
        found.goals = [f"{verb} {metric['name']}"]
        if metric.get("target") is not None:
            found.settings["budget"] = {"target": number(metric["target"], "metric.target")}
    method = data.get("method")
    if method in _METHODS:
        found.settings["suggester"] = _METHODS[method]
    elif method is not None:
        found.notes.append(f"method: {method} has no counterpart: bayes is used")
    if data.get("run_cap") is not None:
        trials = int(number(data["run_cap"], "run_cap"))
        found.settings["budget"] = {"trials": trials, **found.settings.get("budget", {})}
    _early_terminate(found, data.get("early_terminate"))
    _command(found, data)
    found.unread(data, _READ)
    return found


def _parameters(found: ForeignSweep, given: Mapping[str, Any], outer: str) -> None:
    for key, entry in given.items():
        name = f"{outer}{key}"
        if not isinstance(entry, Mapping):
            raise UsageError(f"parameters.{name} must have keys such as values, got {show(entry)}")
        if isinstance(entry.get("parameters"), Mapping):  # nested: the script gets --outer.inner
            _parameters(found, entry["parameters"], f"{name}.")
            continue
        found.add(name, _entry(found, name, entry))


def _entry(found: ForeignSweep, name: str, entry: Mapping[str, Any]) -> Any:
    place = f"parameters.{name}"
    if "value" in entry:
        return [entry["value"]]
    if "values" in entry:
        if entry.get("probabilities") is not None:
            found.notes.append(f"{name}: probabilities are not carried over, all values are alike")
        values = entry["values"]
        return list(values) if isinstance(values, list) else [values]
    low, high = entry.get("min"), entry.get("max")
    whole = isinstance(low, int) and isinstance(high, int)
    kind = str(entry.get("distribution") or ("int_uniform" if whole else "uniform"))
    is_stepped, base = kind.startswith("q_"), kind.removeprefix("q_")
    step = entry.get("q", 1) if is_stepped else None
    if base in ("normal", "log_normal"):
        found.notes.append(bell_note(name))
        mean, deviation = entry.get("mu", 0), entry.get("sigma", 1)
        return bell(mean, deviation, place, log=base == "log_normal", step=step)
    if base == "beta":
        found.notes.append(f"{name}: the shape of the beta distribution is not carried over")
        return range_of(0.0, 1.0, place, step=step)
    if base in ("log_uniform", "inv_log_uniform"):  # the bounds are exponents of e
        ends = number(low, f"min of {place}"), number(high, f"max of {place}")
        exponents = (-ends[1], -ends[0]) if base == "inv_log_uniform" else ends
        if max(exponents) > math.log(1e300):
            raise UsageError(f"the bounds of {place} are exponents of e, got {low} to {high}")
        low, high = (float(f"{math.exp(end):.6g}") for end in exponents)
    elif base not in ("uniform", "int_uniform", "log_uniform_values", "inv_log_uniform_values"):
        raise UsageError(f"{place} has an unknown distribution {show(kind)}")
    log = "log" in base
    if log and is_stepped:
        found.notes.append(f"{name}: steps of {step} are not carried over on a logarithmic scale")
        return range_of(low, high, place, log=True, whole=step == 1)
    return range_of(low, high, place, log=log, step=step, whole=base == "int_uniform")


def _early_terminate(found: ForeignSweep, given: Any) -> None:
    if not isinstance(given, Mapping):
        return
    if given.get("type") != "hyperband":
        found.notes.append(f"early_terminate is not carried over: {show(dict(given))}")
        return
    stopper: dict[str, Any] = {"name": "hyperband"}
    if given.get("min_iter") is not None:
        stopper["grace"] = int(number(given["min_iter"], "early_terminate.min_iter"))
    if given.get("eta") is not None:
        stopper["factor"] = int(number(given["eta"], "early_terminate.eta"))
    if given.get("max_iter") is not None:
        found.settings["max_steps"] = int(number(given["max_iter"], "early_terminate.max_iter"))
    found.settings["stopper"] = stopper


def _command(found: ForeignSweep, data: Mapping[str, Any]) -> None:
    program = str(data.get("program") or "")
    words = data.get("command")
    if not isinstance(words, list):
        words = ["${interpreter}", "${program}", "${args}"] if program else []
    known = {**_WORDS, "${program}": program}
    texts = [known.get(str(word), str(word)) for word in words]
    for word in texts:
        if word.startswith("${"):
            found.notes.append(f"the command has {word}, which means nothing here")
    if "${args_no_boolean_flags}" in words:
        found.notes.append("a flag that is true arrives as --flag=true, not as --flag alone")
    found.command = shell_line(list(filter(None, texts)))
