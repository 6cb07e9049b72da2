"""Whether the best configuration of a sweep really leads: the best ones trained again under other seeds."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from automl.core import ranking
from automl.core.goals import Goal
from automl.core.snapshot import Snapshot
from automl.core.trial import Trial, TrialState
from automl.ledger import Ledger

from .retrain import companion, exists

KIND: Final = "confirm"
LEVEL: Final = 0.95


@dataclass(frozen=True)
class Repeats:
    """One configuration trained again: the number of its trial, and the goal's value in each run that succeeded."""

    trial: int
    values: tuple[float, ...]
    failed: int = 0

    @property
    def mean(self) -> float:
        """NaN where no run succeeded."""
        return float(np.mean(self.values)) if self.values else math.nan

    @property
    def deviation(self) -> float:
        """Standard deviation between runs; NaN of fewer than two."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else math.nan


@dataclass(frozen=True)
class Confirmation:
    """What training the best configurations again has shown.

    Only the new runs count: the values that made them the best were chosen for being good.

    Args:
        goal: the first goal.
        repeats: the configurations, the one that the sweep calls the best first.
    """

    goal: Goal
    repeats: tuple[Repeats, ...]

    @property
    def noise(self) -> float:
        """Standard deviation between runs of one configuration, pooled; NaN where none ran twice."""
        several = [r for r in self.repeats if len(r.values) > 1]
        degrees = sum(len(r.values) - 1 for r in several)
        squares = sum((len(r.values) - 1) * r.deviation**2 for r in several)
        return math.sqrt(squares / degrees) if degrees else math.nan

    def lead(self, other: Repeats) -> tuple[float, float, float]:
        """How far the winner is ahead of another on average (positive is better), and its 95% interval.

        A two-sample t interval with the deviation pooled over all configurations.
        """
        from scipy.stats import t

        winner = self.repeats[0]
        mean = self.goal.loss(other.mean) - self.goal.loss(winner.mean)
        degrees = sum(len(r.values) - 1 for r in self.repeats if r.values)
        if not (winner.values and other.values and degrees):
            return mean, -math.inf, math.inf
        error = self.noise * math.sqrt(1 / len(winner.values) + 1 / len(other.values))
        half = float(t.ppf(0.5 + LEVEL / 2, degrees)) * error
        return mean, mean - half, mean + half

    @property
    def closest(self) -> Repeats | None:
        """Of the others, the one that is best on average."""
        others = [r for r in self.repeats[1:] if r.values]
        return min(others, key=lambda r: self.goal.loss(r.mean), default=None)

    @property
    def exceeds_noise(self) -> bool:
        """Whether the winner leads the closest other by more than runs of one configuration differ."""
        return self.closest is not None and self.lead(self.closest)[1] > 0

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON data."""
        rows = [
            vars(r) | {"values": list(r.values), "mean": r.mean, "deviation": r.deviation}
            for r in self.repeats
        ]
        closest = self.closest
        lead, low, high = self.lead(closest) if closest else (math.nan,) * 3
        against = closest.trial if closest else None
        return {
            "repeats": rows,
            "noise": self.noise,
            "lead": {"against": against, "mean": lead, "low": low, "high": high},
            "exceeds_noise": self.exceeds_noise,
        }

    def __str__(self) -> str:
        from automl.core.text import number

        winner, closest = self.repeats[0], self.closest
        if not winner.values:
            return f"Trained again, trial {winner.trial} failed every time."
        spread = f" ± {number(winner.deviation)}" if len(winner.values) > 1 else ""
        runs = f"{len(winner.values)} runs" if len(winner.values) > 1 else "1 run"
        told = (
            f"Trained again, trial {winner.trial} reaches {number(winner.mean)}{spread} ({runs})."
        )
        if closest is None:
            return told
        lead, low, high = self.lead(closest)
        interval = f"95% interval {number(low)} to {number(high)}"
        if self.exceeds_noise:
            return f"{told} Its lead over trial {closest.trial} of {number(lead)} exceeds the noise ({interval})."
        if lead < 0:
            verdict = "which exceeds the noise" if high < 0 else "within the noise"
            return f"{told} Trial {closest.trial} is better by {number(-lead)} on average, {verdict} ({interval})."
        return f"{told} Its lead over trial {closest.trial} of {number(lead)} is within the noise ({interval})."


def candidates(snapshot: Snapshot, space: Any, count: int) -> list[Trial]:
    """The best trials, of equal configurations only the first."""
    goal, last = snapshot.goals[0], snapshot.last_report_counts
    scored = []
    for trial in snapshot.trials:
        value = ranking.value(trial, goal, snapshot.constraints, last_report_counts=last)
        if value is not None and trial.state.finished:
            scored.append((goal.loss(value), trial.number, trial))
    found: dict[Hashable, Trial] = {}
    for _, _, trial in sorted(scored, key=lambda item: item[:2]):
        found.setdefault(space.key(trial.params), trial)
    return list(found.values())[:count]


def missing(ledger: Ledger, sweep: str, chosen: Sequence[Trial], seeds: int) -> list[Trial]:
    """What must still be trained so that each of the chosen has run `seeds` times, seed by seed."""
    name, space = companion(sweep, KIND), ledger.spec(sweep).space
    counts = {space.key(trial.params): 0 for trial in chosen}
    for done in ledger.trials(name) if exists(ledger, name) else []:
        if (key := space.key(done.params)) in counts:
            counts[key] += 1
    rounds = range(max(seeds - min(counts.values(), default=0), 0))
    return [t for i in rounds for t in chosen if counts[space.key(t.params)] + i < seeds]


def read(ledger: Ledger, sweep: str) -> Confirmation | None:
    """What is known of the sweep's best configurations; None where its present best was not trained again."""
    name = companion(sweep, KIND)
    if not exists(ledger, name):
        return None
    snapshot, again, space = ledger.snapshot(sweep), ledger.snapshot(name), ledger.spec(sweep).space
    ended = [trial for trial in again.trials if trial.state.finished]
    originals = {space.key(t.params): t for t in candidates(snapshot, space, len(snapshot.trials))}
    runs: dict[Hashable, list[Trial]] = {}
    for trial in ended:
        if (key := space.key(trial.params)) in originals:
            runs.setdefault(key, []).append(trial)
    ordered = [key for key in originals if key in runs]
    if not ordered or snapshot.best is None or ordered[0] != space.key(snapshot.best.params):
        return None
    return Confirmation(
        snapshot.goals[0], tuple(_repeats(originals[k].number, runs[k], again) for k in ordered)
    )


def _repeats(number: int, runs: Sequence[Trial], again: Snapshot) -> Repeats:
    goal, last = again.goals[0], again.last_report_counts
    values = [
        ranking.value(trial, goal, again.constraints, last_report_counts=last) for trial in runs
    ]
    failed = sum(trial.state is TrialState.FAILED for trial in runs)
    return Repeats(number, tuple(value for value in values if value is not None), failed)
