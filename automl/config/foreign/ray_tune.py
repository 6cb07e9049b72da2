"""An experiment of Ray Tune: its YAML with `grid_search`, or the state that it leaves on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from automl.errors import UsageError

from .sweep import ForeignSweep, number, range_of

GRID: Final = "grid_search"
_STATES: Final = ("trial_data", "checkpoints")
_WIDE: Final = 100  # values whose largest is so many times the least are on a logarithmic scale


def fits(data: Any) -> bool:
    """Whether it is such a file."""
    return isinstance(data, Mapping) and (
        any(isinstance(data.get(key), list) for key in _STATES) or _has_grid(data)
    )


def _has_grid(data: Any) -> bool:
    if not isinstance(data, Mapping):
        return False
    return GRID in data or any(map(_has_grid, data.values()))


def read(data: Mapping[str, Any]) -> ForeignSweep:
    """The sweep; raises UsageError if nothing in it can be tuned."""
    found = ForeignSweep("Ray Tune")
    if not any(isinstance(data.get(key), list) for key in _STATES):
        _of_grid(found, data)
    else:
        _of_state(found, data)
    found.goals = ["minimize loss"]
    found.notes.append(f"the goal is a guess ({found.goals[0]}): Tune's file names no metric")
    return found


def _of_grid(found: ForeignSweep, data: Mapping[str, Any]) -> None:
    inner = data
    while len(inner) == 1 and GRID not in inner and isinstance(next(iter(inner.values())), Mapping):
        inner = next(iter(inner.values()))  # below the name of the experiment
    config = inner.get("param_space") or inner.get("config") or inner
    for name, value in _flat(config):
        grid = value.get(GRID) if isinstance(value, Mapping) else None
        found.add(name, list(grid) if isinstance(grid, list) else [value])
    if inner.get("num_samples") is not None:
        found.settings["budget"] = {"trials": int(number(inner["num_samples"], "num_samples"))}
        found.notes.append("num_samples counted for each point of the grid; here it is all trials")
    stop = inner.get("stop")
    if isinstance(stop, Mapping) and "training_iteration" in stop:
        steps = number(stop["training_iteration"], "stop.training_iteration")
        found.settings["max_steps"] = int(steps)
    if config is not inner:
        found.unread(inner, ("param_space", "config", "num_samples", "stop"))


def _flat(config: Mapping[str, Any], outer: str = "") -> list[tuple[str, Any]]:
    """The values below a configuration, with dotted names; a grid is one value."""
    found: list[tuple[str, Any]] = []
    for key, value in config.items():
        if isinstance(value, Mapping) and value and GRID not in value:
            found += _flat(value, f"{outer}{key}.")
        else:
            found.append((f"{outer}{key}", value))
    return found


def _of_state(found: ForeignSweep, data: Mapping[str, Any]) -> None:
    """Read the configurations of trials: the space itself is pickled there, so it is not read."""
    entries = next(data[key] for key in _STATES if isinstance(data.get(key), list))
    configs = [config for entry in entries if (config := _config(entry))]
    if not configs:
        raise UsageError("this state of Ray Tune holds no configuration that is plain data")
    values: dict[str, list[Any]] = {}
    for config in configs:
        for name, value in _flat(config):
            if not isinstance(value, Mapping):  # what is pickled
                values.setdefault(name, []).append(value)
    for name, seen in values.items():
        found.add(name, _seen(seen, name))
    found.notes.append(
        "the space is pickled in the file, and nothing is unpickled: ranges are what "
        f"{len(configs)} trials had; widen them"
    )


def _config(entry: Any) -> Mapping[str, Any] | None:
    """The configuration of a trial; None if it is not plain data."""
    text = entry[0] if isinstance(entry, list) and entry else entry
    try:
        state = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return None
    if not isinstance(state, Mapping):
        return None
    config = state.get("evaluated_params") or state.get("config")
    return config if isinstance(config, Mapping) and "_type" not in config else None


def _seen(values: list[Any], name: str) -> Any:
    """An entry for the values that trials had."""
    distinct = [value for i, value in enumerate(values) if value not in values[:i]]
    if len(distinct) < 2 or any(type(value) not in (int, float) for value in distinct):
        return distinct
    low, high = min(distinct), max(distinct)
    whole = all(isinstance(value, int) for value in distinct)
    return range_of(low, high, name, log=low > 0 and low * _WIDE <= high, whole=whole)
