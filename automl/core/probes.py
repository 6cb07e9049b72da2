"""Probes of settings of speed: short runs inside a sweep that are no trials of it.

Each is held as a `Trial` of its own, so that whatever reads trials can read probes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from search_spaces import Space
from workers.protocol import Params

from .durations import duration
from .events import ProbeBegun, ProbeEnded
from .spec import SweepSpec
from .trial import Trial, TrialState

PROBE: Final = -1  # less the number of a probe: its number at the dispatcher, never a trial's
SPEED: Final = "items_per_second"
SLOTS: Final = "slots"  # key of a probe's details


def begun(event: ProbeBegun) -> Trial:
    """A probe that runs."""
    return Trial(
        event.number,
        dict(event.params),
        TrialState.RUNNING,
        attempts=1,
        source="probe",
        started=event.at,
        details={SLOTS: event.slots},
    )


def ended(probe: Trial, event: ProbeEnded) -> Trial:
    """A probe that is over; its seconds are those for which it had its slots."""
    metrics = {} if event.speed is None else {SPEED: event.speed}
    if event.peak_memory_bytes is not None:
        metrics["peak_memory_bytes"] = float(event.peak_memory_bytes)
    return replace(
        probe,
        state=TrialState.FAILED if event.failure else TrialState.COMPLETED,
        metrics=metrics,
        failure=event.failure,
        message=event.message,
        seconds=max(0.0, event.at - (probe.started or 0.0)),
        peak_memory_bytes=event.peak_memory_bytes,
        ended=event.at,
    )


def speed_names(space: Space) -> list[str]:
    """The parameters that cannot change the result, only speed or memory."""
    return [p.name for p in space.parameters.values() if "quality" not in p.affects]


def settings(params: Params, names: Sequence[str]) -> Mapping[str, Any]:
    """The part of a configuration that cannot change the result."""
    return {name: params[name] for name in names if name in params}


@dataclass(frozen=True)
class MeasuredSettings:
    """A probe that has succeeded.

    Args:
        number: of the probe.
        params: what cannot change the result.
        speed: items per second, of a slot unless a goal asks for speed: more slots for a trial are
            fewer trials at once.
        slots: that it takes.
    """

    number: int
    params: Params
    speed: float
    slots: int


def asks_for_speed(spec: SweepSpec) -> bool:
    """Whether a goal depends on speed, as one within a time does."""
    return any("speed" in goal.aspects for goal in spec.goals)


def measured(probes: Sequence[Trial], spec: SweepSpec) -> list[MeasuredSettings]:
    """The probes that have succeeded, and hold the constraints on memory."""
    names = speed_names(spec.space)
    alone = asks_for_speed(spec)
    bounds = [one for one in spec.constraints if one.aspects == {"memory"}]
    found = []
    for probe in probes:
        if SPEED in probe.metrics and all(bound.holds(probe.metrics) for bound in bounds):
            slots = max(1, probe.details[SLOTS])
            speed = probe.metrics[SPEED] / (1 if alone else slots)
            chosen = settings(probe.params, names)
            found.append(MeasuredSettings(probe.number, chosen, speed, slots))
    return found


@dataclass(frozen=True)
class ProbeAccount:
    """What the probes of a sweep cost, and what they saved.

    Args:
        count: of the probes.
        cost: worker seconds.
        speedup: speed of the fastest settings, divided by that of trial 0's; 1 if none is faster.
        saved: worker seconds that the trials would have taken longer with the settings of trial 0.
    """

    count: int
    cost: float
    speedup: float = 1.0
    saved: float = 0.0

    @classmethod
    def of(cls, probes: Sequence[Trial], trials: Sequence[Trial], spec: SweepSpec) -> ProbeAccount:
        """The account; the first probe has the settings of trial 0."""
        cost = sum(probe.seconds * probe.details[SLOTS] for probe in probes)
        known, names = measured(probes, spec), speed_names(spec.space)
        first = next(
            (one for one in known if one.params == settings(trials[0].params, names)), None
        )
        if first is None:
            return cls(len(probes), cost)
        saved = sum(
            trial.seconds * one.slots * (one.speed / first.speed - 1)
            for trial in trials
            for one in known
            if trial.state.finished and settings(trial.params, names) == one.params
        )
        return cls(len(probes), cost, max(one.speed for one in known) / first.speed, saved)

    def __str__(self) -> str:
        """A sentence for the report."""
        text = f"{self.count} took {duration(self.cost)} of worker time"
        if self.speedup <= 1:
            return f"{text}; nothing was faster than the settings of trial 0"
        return (
            f"{text} and found settings {self.speedup:.3g} times as fast as those of trial 0, with "
            f"which the trials would have taken {duration(self.saved)} longer"
        )
