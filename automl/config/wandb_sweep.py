"""Writes a configuration from a sweep of Weights & Biases, the YAML file of `wandb sweep`.

The file is read as data: nothing in it is run. What has no counterpart is a note.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from automl.config.source import WrittenConfig
from automl.config.template import name_of
from automl.core import Budget, parse_goals
from automl.core.text import printable, shell_line
from automl.errors import UsageError
from search_spaces.plain import read_space
from search_spaces.validation import show

_DEVIATIONS: Final = 3  # a normal distribution becomes the range of so many on either side
_READ: Final = {
    *("program", "method", "metric", "parameters", "early_terminate", "run_cap", "command"),
    *("name", "project", "entity", "description"),
}


@dataclass
class WandbSweep:
    """What a sweep says, in the terms of this project.

    Args:
        space: by parameter an entry of `space:`, as plain data.
        settings: other keys of a configuration.
        command: what to type after `--`.
        notes: what was not carried over, or not exactly.
        as_json: whether the program reads its parameters from a JSON file.
    """

    space: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    command: str = ""
    notes: list[str] = field(default_factory=list)
    as_json: bool = False

    def text(self, source: str, file: str) -> str:
        """A configuration with comments; `source` is the sweep's file, `file` its own."""
        lines = [
            f"# From {printable(source)}, a sweep of Weights & Biases",
            f"#   automl sweep {file} -- {self.command}",
            "# The program prints each metric as `NAME: VALUE`, or writes JSON lines to the file",
            "# $AUTOML_REPORTS; `reports: {NAME: REGEX}` finds it in other output.",
            *(f"# Not carried over exactly: {printable(note)}" for note in self.notes),
            f"name: {name_of(file)}",
            *(f"{key}: {json.dumps(value)}" for key, value in self.settings.items()),
            "space:",
            *(f"  {name}: {json.dumps(entry)}" for name, entry in self.space.items()),
        ]
        return "\n".join(lines) + "\n"


def read_wandb(path: Path) -> WandbSweep:
    """The sweep in a file.

    Raises:
        UsageError: the file cannot be read, is no such sweep, or has nothing that can be tuned.
    """
    source = WrittenConfig.of_file(path)
    source.raise_any()
    data = source.data
    if not isinstance(data, Mapping) or not isinstance(data.get("parameters"), Mapping):
        raise UsageError(
            f"--from: {path} is not recognised: it must be the YAML file of `wandb sweep`, which "
            "has `parameters:`"
        )
    found = WandbSweep(as_json="${args_json_file}" in _words(data))
    try:
        _read_parameters(found, data["parameters"], "")
        _read_settings(found, data)
        parse_goals(found.settings["goals"])
        Budget(**found.settings["budget"])
    except UsageError as error:
        raise UsageError(f"--from: {path}: {error}") from error
    if not found.space:
        raise UsageError(
            "\n  ".join([f"--from: nothing in {path} can be tuned here", *found.notes])
        )
    found.command = _command(found, data)
    found.notes += [
        f"{name} is not carried over: {show(value)}"
        for name, value in data.items()
        if name not in _READ
    ]
    return found


def _read_parameters(found: WandbSweep, given: Mapping[str, Any], outer: str) -> None:
    for key, entry in given.items():
        name = f"{outer}{key}"
        if isinstance(entry, Mapping) and isinstance(entry.get("parameters"), Mapping):
            _read_parameters(found, entry["parameters"], f"{name}.")  # --outer.inner of the script
            continue
        try:
            value = _entry(found, name, entry)
            read_space({name: value})
        except (ValueError, TypeError, OverflowError) as error:
            found.notes.append(f"{name} is left out: {error}")
        else:
            found.space[name] = value


def _entry(found: WandbSweep, name: str, entry: Any) -> Any:
    """The entry of `space:` for a parameter; raises ValueError and the like if it has none."""
    if not isinstance(entry, Mapping):
        raise ValueError(f"it must have keys such as values, got {show(entry)}")
    if "value" in entry or "values" in entry:
        if entry.get("probabilities") is not None:
            found.notes.append(f"{name}: probabilities are left out, all values are alike")
        values = entry.get("values", [entry.get("value")])
        if found.as_json or not any(isinstance(one, bool) for one in values):
            return values
        found.notes.append(f"{name}: booleans are the texts True and False, as in W&B")
        return [str(one) if isinstance(one, bool) else one for one in values]
    low: Any = entry.get("min")
    high: Any = entry.get("max")
    are_whole = isinstance(low, int) and isinstance(high, int)
    kind = str(entry.get("distribution") or ("int_uniform" if are_whole else "uniform"))
    base, log = kind.removeprefix("q_").removeprefix("inv_"), "log" in kind
    if "normal" in kind:
        found.notes.append(f"{name}: {_DEVIATIONS} deviations around the mean of a normal one")
        mean, wide = entry.get("mu", 0), _DEVIATIONS * entry.get("sigma", 1)
        low, high = mean - wide, mean + wide
    if base in ("log_normal", "log_uniform"):  # the bounds are exponents of e
        ends = (-high, -low) if kind.startswith("inv_") else (low, high)
        low, high = (float(f"{math.exp(end):.6g}") for end in ends)
    elif base not in ("normal", "uniform", "int_uniform", "log_uniform_values"):
        raise ValueError(f"unknown distribution {show(kind)}")
    step = entry.get("q", 1) if kind.startswith("q_") else 0
    is_whole = base == "int_uniform" or (step >= 1 and step == int(step))
    if step > 0 and not log:
        low, high = (float(f"{round(end / step) * step:.12g}") for end in (low, high))
    low, high = (math.ceil(low), math.floor(high)) if is_whole else (float(low), float(high))
    more: dict[str, Any] = {"type": "int"} if is_whole else {}
    more |= {"log": True} if log else {"step": step} if step > is_whole else {}
    return {"low": low, "high": high, **more}


def _read_settings(found: WandbSweep, data: Mapping[str, Any]) -> None:
    """The goal, the budget, the suggester and the stopper."""
    metric = data.get("metric")
    metric = metric if isinstance(metric, Mapping) else {}
    if not metric.get("name"):
        found.notes.append("the goal is a guess (minimize loss): the file names no metric")
    verb = "maximize" if metric.get("goal") == "maximize" else "minimize"
    settings = found.settings
    settings |= {
        "goals": [f"{verb} {metric.get('name') or 'loss'}"],
        "budget": {"trials": data.get("run_cap") or 20},
        "suggester": "random" if data.get("method") == "random" else "bayes",
    }
    if metric.get("target") is not None:
        settings["budget"]["target"] = metric["target"]
    if data.get("method") not in ("bayes", "random", None):
        found.notes.append(f"method: {data['method']} has no counterpart: bayes is used")
    early = data.get("early_terminate")
    if isinstance(early, Mapping) and early.get("type") == "hyperband":
        numbers = {"grace": early.get("min_iter"), "factor": early.get("eta")}
        given = {key: value for key, value in numbers.items() if value is not None}
        settings["stopper"] = {"name": "hyperband", **given}
        settings |= {"max_steps": early["max_iter"]} if early.get("max_iter") else {}
    elif early is not None:
        found.notes.append(f"early_terminate is not carried over: {show(early)}")


def _words(data: Mapping[str, Any]) -> list[Any]:
    words = data.get("command")
    return words if isinstance(words, list) else ["${interpreter}", "${program}", "${args}"]


def _command(found: WandbSweep, data: Mapping[str, Any]) -> str:
    """What to type after `--`."""
    words = _words(data)
    if "${args_no_boolean_flags}" in words:
        found.notes.append("booleans are --NAME=True and --NAME=False, not flags without a value")
    known: dict[str, list[str]] = {
        "${env}": [],
        "${interpreter}": ["python"] if "program" in data else [],
        "${program}": [str(data.get("program") or "COMMAND")],
        "${args}": ["{params}"],
        "${args_no_boolean_flags}": ["{params}"],
        "${args_no_hyphens}": [f"{name}={{{name}}}" for name in found.space],
        "${args_json_file}": ["{config}"],
    }
    found.notes += [
        f"the command has {word}, which means nothing here"
        for word in map(str, words)
        if word.startswith("${") and word not in known
    ]
    return shell_line([text for word in words for text in known.get(str(word), [str(word)])])
