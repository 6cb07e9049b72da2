"""Finds the fastest settings that cannot change the result, by a sweep of short trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from automl.control.speed_probes import probing
from automl.core import SweepSpec, Trial
from automl.core.probes import SPEED, settings, speed_names
from automl.errors import UsageError
from automl.ledger import Ledger
from workers.protocol import Params

from .beginning import Beginning, begin

if TYPE_CHECKING:
    from search_spaces import Space


@dataclass(frozen=True)
class Measured:
    """What a probe of one configuration found.

    Args:
        params: the settings of speed and memory that were tried.
        items_per_second: the median of its windows; 0 if it failed.
        peak_memory_bytes: of a rank; None if it was not measured.
        share_of_best: its speed divided by that of the fastest.
        noise: half of the range of its windows, divided by their median.
        failure: its kind, such as "out_of_memory"; None if it did not fail.
    """

    params: Params
    items_per_second: float
    peak_memory_bytes: int | None
    share_of_best: float
    noise: float = 0.0
    failure: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return {name: value for name, value in vars(self).items() if name != "noise"}


def settings_to_try(space: Space) -> list[str]:
    """The parameters that cannot change the result, only speed or memory.

    Raises:
        UsageError: there are none.
    """
    found = speed_names(space)
    if not found:
        raise UsageError(
            "every parameter of the space may affect the quality, so there is nothing to try: add "
            "knobs of speed, or declare affects: [speed, memory]; `automl space CONFIG` shows them"
        )
    return found


def prepare(
    ledger: Ledger, spec: SweepSpec, quality: Params, seconds: float, updates: int | None = None
) -> SweepSpec:
    """Create the sweep of probes.

    Args:
        ledger: an empty one.
        spec: of the sweep whose settings are sought.
        quality: a configuration of it. What affects quality stays as it is there; its settings of
            speed are tried first.
        seconds, updates: see `probing`.

    Raises:
        UsageError: there is nothing to try, or the workload cannot be probed.
    """
    names = settings_to_try(spec.space)
    first = spec.space.complete(quality)
    held = {name: value for name, value in first.items() if name not in names}
    probes = replace(probing(spec, seconds, updates), space=_with_defaults(spec.space, first))
    return begin(ledger, probes, Beginning(limits=held))


def _with_defaults(space: Space, params: Params) -> Space:
    """The space with these values as defaults: trial 0 has them."""
    from search_spaces import Space
    from search_spaces.parameters import parameter_from_dict

    given = [
        parameter_from_dict({**p.to_dict(), "default": params[p.name]}) if p.name in params else p
        for p in space.parameters.values()
    ]
    return Space(*given, constraints=space.constraints)


def measured(trials: Sequence[Trial], names: Sequence[str]) -> list[Measured]:
    """What finished probes found: the fastest first, those that failed last.

    Args:
        names: of the settings that were tried.
    """
    ended = [t for t in trials if t.state.finished and (t.failure or SPEED in t.metrics)]
    speeds = {t.number: 0.0 if t.failure else t.metrics[SPEED] for t in ended}
    fastest = max(speeds.values(), default=0.0)
    found = [
        Measured(
            settings(trial.params, names),
            speeds[trial.number],
            trial.peak_memory_bytes,
            speeds[trial.number] / fastest if fastest else 0.0,
            _noise(trial),
            trial.failure,
        )
        for trial in ended
    ]
    return sorted(found, key=lambda one: -one.items_per_second)


def _noise(trial: Trial) -> float:
    windows = [r.metrics[SPEED] for r in trial.reports if SPEED in r.metrics]
    middle = median(windows) if windows else 0.0
    return (max(windows) - min(windows)) / 2 / middle if middle else 0.0
