"""Finds the fastest settings that cannot change the result, by a sweep of short trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from statistics import mean
from typing import Any, Final

from automl.core import Budget, Goal, Knowledge, PluginChoice, SweepSpec, Trial
from automl.errors import UsageError
from automl.ledger import Ledger
from search_spaces import Space
from search_spaces.parameters import parameter_from_dict
from workers.protocol import Params

from . import steering
from .beginning import begin

AGAIN: Final = 2  # runs of a setting, in the mean, if all settings were tried in time
SPEED: Final = "items_per_second"
UPDATES: Final = 20  # measured of a workload, after those that warm up
REPORTS: Final = 4  # timed of a function or a program, after the first
NEVER: Final = (
    *("train_seconds", "max_epochs", "evaluate_seconds", "evaluate_updates"),
    *("checkpoint_seconds", "checkpoint_updates"),
)
ENDLESS: Final = 10**9  # updates; the trial ends before


@dataclass(frozen=True)
class Measured:
    """What the probes of one configuration found.

    Args:
        params: the settings of speed and memory that were tried.
        items_per_second: the mean over its probes of the median of the windows; 0 if all failed.
        peak_memory_bytes: of a rank, at most; None if it was not measured.
        share_of_best: its speed divided by that of the recommended one.
        failure: its kind, such as "out_of_memory"; None if a probe has succeeded.
        probes: how many there were.
    """

    params: Params
    items_per_second: float
    peak_memory_bytes: int | None
    share_of_best: float
    failure: str | None = None
    probes: int = 1


def settings(params: Params, names: Sequence[str]) -> Mapping[str, Any]:
    """The part of a configuration that cannot change the result."""
    return {name: params[name] for name in names if name in params}


def settings_to_try(space: Space) -> list[str]:
    """The parameters that cannot change the result, only speed or memory.

    Raises:
        UsageError: there are none.
    """
    found = [p.name for p in space.parameters.values() if "quality" not in p.affects]
    if not found:
        raise UsageError(
            "every parameter of the space may affect the quality, so there is nothing to try: add "
            "knobs of speed, or declare affects: [speed, memory]; `automl space CONFIG` shows them"
        )
    return found


def _fixed(spec: SweepSpec, updates: int) -> Mapping[str, Any]:
    """The fixed options of a short trial: no evaluation, no checkpoint, no end but its own."""
    if spec.workload is None:
        return spec.fixed
    if not any(metric.name == SPEED for metric in spec.metrics):
        raise UsageError(
            f"the workload {spec.workload} has a trainer of its own, which does not report {SPEED}"
        )
    from workers.training import SPEED_WINDOWS

    never = dict.fromkeys(NEVER)
    window = max(1, round(updates / SPEED_WINDOWS))
    return {**spec.fixed, **never, "max_updates": ENDLESS, "speed_updates": window}


def prepare(
    ledger: Ledger, spec: SweepSpec, seconds: float, updates: int | None = None
) -> SweepSpec:
    """Create the sweep of short trials that measure the speed of another one's settings.

    Args:
        ledger: an empty one.
        spec: of the sweep whose settings are sought. What affects quality stays at its default.
        seconds: of the wall clock, for all trials.
        updates: measured in a trial of a workload.

    Raises:
        UsageError: there is nothing to try, or the workload cannot be probed.
    """
    names = settings_to_try(spec.space)
    first = spec.space.complete({})
    held = {name: value for name, value in first.items() if name not in names}
    choices = [size for name in names if (size := spec.space.parameters[name].size)]
    count = AGAIN * prod(choices) if len(choices) == len(names) else None
    probes = begin(
        ledger,
        replace(
            spec,
            name="speed",
            space=_with_defaults(spec.space, first),
            goals=(Goal(SPEED, maximize=True, at_end=True),),
            constraints=tuple(one for one in spec.constraints if one.aspects == {"memory"}),
            fixed=_fixed(spec, updates or UPDATES),
            budget=Budget(trials=count, time=seconds),
            replicates="auto",  # the fastest of many single probes is a lucky one
            suggester=PluginChoice("bayes"),
            stopper=PluginChoice("none"),
            max_steps=None,
            resumable=False,
            trackers=(),
            artifacts="",
            knowledge=Knowledge(),
            history=replace(spec.history, explored=None),
        ),
    )
    if held:
        steering.change(ledger, probes.name, {f"space.{name}": v for name, v in held.items()})
    return probes


def _with_defaults(space: Space, params: Params) -> Space:
    """The space with these values as defaults: trial 0 has them."""
    given = [
        parameter_from_dict({**p.to_dict(), "default": params[p.name]}) if p.name in params else p
        for p in space.parameters.values()
    ]
    return Space(*given, constraints=space.constraints)


def measured(
    trials: Sequence[Trial], names: Sequence[str], recommended: Params | None = None
) -> list[Measured]:
    """What finished probes found: the recommended settings first, then the fastest.

    Args:
        names: of the settings that were tried.
        recommended: a configuration; None for the fastest.
    """
    ended = [t for t in trials if t.state.finished and (t.failure or SPEED in t.metrics)]
    ended.sort(key=lambda trial: trial.failure is not None)  # what has succeeded comes first
    runs: dict[str, list[Trial]] = {}
    for trial in ended:
        runs.setdefault(str(settings(trial.params, names)), []).append(trial)
    first = str(settings(recommended or {}, names))
    speeds = {
        key: mean(
            0.0 if t.failure else t.metrics[SPEED] for t in found if t.failure == found[0].failure
        )
        for key, found in runs.items()
    }
    order = sorted(runs, key=lambda key: (key != first, -speeds[key]))
    best = speeds[order[0]] if order else 0.0
    return [
        Measured(
            settings(runs[key][0].params, names),
            speeds[key],
            max((t.peak_memory_bytes for t in runs[key] if t.peak_memory_bytes), default=None),
            speeds[key] / best if best else 0.0,
            runs[key][0].failure,
            len(runs[key]),
        )
        for key in order
    ]
