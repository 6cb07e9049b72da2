"""Everything that the report of a sweep shows, read once from its ledger.

With it are the new runs of `automl confirm`: their spread, and whether the best one really leads.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from automl.core import Goal, Noted, Snapshot, SweepSpec, SweepState, Trial, TrialState
from automl.core.arguments import companion
from automl.core.text import number
from automl.errors import AutomlError, StoreError
from search_spaces import Space
from workers.protocol import Params

if TYPE_CHECKING:
    from automl.ledger import Ledger

KIND: Final = "confirm"  # `automl confirm nmt` keeps its runs as the sweep nmt.confirm
LEVEL: Final = 0.95


@dataclass(frozen=True)
class Repeats:
    """The runs of one configuration.

    Args:
        trial: number of the original trial.
        values: of the goal, one for each run that succeeded.
        failed: number of runs that failed.
    """

    trial: int
    values: tuple[float, ...]
    failed: int = 0

    @property
    def mean(self) -> float:
        """Mean over the runs; NaN if none succeeded."""
        return float(np.mean(self.values)) if self.values else math.nan

    @property
    def deviation(self) -> float:
        """Standard deviation between runs; NaN for fewer than two."""
        # Exactly 0 for equal values, which NumPy's is not, since it rounds their mean.
        return statistics.stdev(self.values) if len(self.values) > 1 else math.nan


@dataclass(frozen=True)
class Confirmation:
    """New runs of the best configurations.

    The original values do not count: they are biased upwards by selection.

    Args:
        goal: the first goal.
        repeats: the runs by configuration, first that which the sweep recommended.
    """

    goal: Goal
    repeats: tuple[Repeats, ...]

    @property
    def degrees(self) -> int:
        """Degrees of freedom of `noise`."""
        return sum(len(r.values) - 1 for r in self.repeats if r.values)

    @property
    def noise(self) -> float:
        """Pooled standard deviation between runs of one configuration; NaN if none ran twice."""
        several = [r for r in self.repeats if len(r.values) > 1]
        squares = sum((len(r.values) - 1) * r.deviation**2 for r in several)
        return math.sqrt(squares / self.degrees) if several else math.nan

    def interval(self, repeats: Repeats) -> tuple[float, float] | None:
        """The 90% t interval of a configuration's mean, by `noise`; None if runs do not differ."""
        from scipy.stats import t

        if not (repeats.values and self.noise > 0):
            return None
        half = float(t.ppf(0.95, self.degrees)) * self.noise / math.sqrt(len(repeats.values))
        return repeats.mean - half, repeats.mean + half

    def lead(self, other: Repeats) -> tuple[float, float, float]:
        """Mean lead of the winner over another one (positive is better), and its 95% interval.

        It is a two-sample t interval with the deviation pooled over all configurations.
        """
        from scipy.stats import t

        winner = self.repeats[0]
        mean = self.goal.loss(other.mean) - self.goal.loss(winner.mean)
        if not (winner.values and other.values and self.degrees):
            return mean, -math.inf, math.inf
        error = self.noise * math.sqrt(1 / len(winner.values) + 1 / len(other.values))
        half = float(t.ppf(0.5 + LEVEL / 2, self.degrees)) * error
        return mean, mean - half, mean + half

    @property
    def closest(self) -> Repeats | None:
        """The best of the other configurations, by mean; None if no other run succeeded."""
        others = [r for r in self.repeats[1:] if r.values]
        return min(others, key=lambda r: self.goal.loss(r.mean), default=None)

    @property
    def leader(self) -> Repeats:
        """The configuration with the best mean; the first if none has succeeded."""
        known = [r for r in self.repeats if r.values]
        return min(known, key=lambda r: self.goal.loss(r.mean), default=self.repeats[0])

    def doubts(self) -> dict[int, float]:
        """By trial, the probability that this configuration is better than the leader.

        It is that of a t test with the pooled deviation; 1 if one of the two has no run.
        """
        from scipy.stats import t

        first, found = self.leader, {}
        for other in self.repeats:
            if other is first:
                continue
            ahead = self.goal.loss(other.mean) - self.goal.loss(first.mean)
            if not (other.values and self.degrees) or math.isnan(ahead):
                found[other.trial] = 0.0 if other.failed and not other.values else 1.0
                continue
            error = self.noise * math.sqrt(1 / len(first.values) + 1 / len(other.values))
            worse = t.sf(ahead / error, self.degrees) if error else not ahead
            found[other.trial] = float(worse)
        return found

    @property
    def probability(self) -> float:
        """A lower bound of the probability that the leader is the best of these configurations.

        By Bonferroni's inequality, as in Chen et al., "Simulation budget allocation for further
        enhancing the efficiency of ordinal optimization", 2000.
        """
        return max(0.0, 1.0 - sum(self.doubts().values()))

    @property
    def exceeds_noise(self) -> bool:
        """Whether the lead over the closest other is larger than run-to-run noise."""
        return self.closest is not None and self.lead(self.closest)[1] > 0

    def to_dict(self) -> dict[str, Any]:
        """The runs and the lead as JSON data."""
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
            "leader": self.leader.trial,
            "probability": self.probability,
        }

    def __str__(self) -> str:
        winner, closest = self.repeats[0], self.closest
        if not winner.values:
            return f"Trained again, trial {winner.trial} failed every time."
        spread = f" ± {number(winner.deviation)}" if winner.deviation > 0 else ""
        runs = f"{len(winner.values)} runs" if len(winner.values) > 1 else "1 run"
        text = (
            f"Trained again, trial {winner.trial} reaches {number(winner.mean)}{spread} ({runs})."
        )
        if closest is None:
            return text
        if self.noise == 0:
            return (
                f"{text} Runs of a configuration do not differ: the objective ignores its seed "
                "(trial.seed, AUTOML_SEED), so they say nothing of noise, or it is deterministic. "
                f"Trial {self.leader.trial} is the best of {len(self.repeats)} configurations."
            )
        sure = f"Trial {self.leader.trial} is the best of {len(self.repeats)} configurations with"
        return f"{text} {self._lead(closest)} {sure} a probability of {self.probability:.0%}."

    def _lead(self, closest: Repeats) -> str:
        """The lead of the first configuration over the closest other one, in a sentence."""
        lead, low, high = self.lead(closest)
        if lead < 0:
            size = "which exceeds the noise" if high < 0 else "within the noise"
            return (
                f"Trial {closest.trial} is better by {number(-lead)} on average, "
                f"{size} (95% interval {number(-high)} to {number(-low)})."
            )
        interval = f"95% interval {number(low)} to {number(high)}"
        size = "exceeds" if self.exceeds_noise else "is within"
        return (
            f"Its lead over trial {closest.trial} of {number(lead)} {size} the noise ({interval})."
        )


def identity(space: Space, params: Params) -> Hashable:
    """Identity of a configuration; one from before a change of the space gets its defaults."""
    return space.key(space.complete(params))


def candidates(snapshot: Snapshot, space: Space, count: int) -> list[Trial]:
    """The best trials, at most `count`; of equal configurations only the first."""
    scored = [
        (snapshot.goals[0].loss(value), trial.number, trial)
        for trial in snapshot.trials
        if trial.state.finished and (value := snapshot.value(trial)) is not None
    ]
    found: dict[Hashable, Trial] = {}
    for _, _, trial in sorted(scored, key=lambda item: item[:2]):
        found.setdefault(identity(space, trial.params), trial)
    return list(found.values())[:count]


def read_confirmation(ledger: Ledger, snapshot: Snapshot) -> Confirmation | None:
    """The new runs of a sweep's best configurations; None if its present best has none."""
    name, spec = companion(snapshot.sweep, KIND), snapshot.spec
    if spec is None or not ledger.exists(name):
        return None
    again, space = ledger.snapshot(name), spec.known_space
    every = candidates(snapshot, space, len(snapshot.trials))
    originals = {identity(space, trial.params): trial for trial in every}
    runs: dict[Hashable, list[Trial]] = {}
    for trial in again.trials:
        if trial.state.finished and (key := identity(space, trial.params)) in originals:
            runs.setdefault(key, []).append(trial)
    ordered = list(runs)  # as `confirm` has begun them: the recommended configuration first
    best = snapshot.best
    if best is None or identity(space, best.params) not in runs:
        return None
    return Confirmation(
        snapshot.goals[0], tuple(_repeats(originals[k].number, runs[k], again) for k in ordered)
    )


def _repeats(number: int, runs: Sequence[Trial], again: Snapshot) -> Repeats:
    values = [again.value(trial) for trial in runs]
    failed = sum(trial.state is TrialState.FAILED for trial in runs)
    return Repeats(number, tuple(value for value in values if value is not None), failed)


@dataclass(frozen=True)
class Record:
    """A sweep as its report shows it.

    Args:
        snapshot: of the sweep.
        environment: git commit, versions and hardware; empty if they are not known.
        notes: by time.
        confirmation: repeated trainings of the best configurations; None if there are none.
    """

    snapshot: Snapshot
    environment: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[Noted] = ()
    confirmation: Confirmation | None = None

    def __post_init__(self) -> None:
        """Trials from before a change of the space get its defaults, as they count for `bayes`."""
        if (spec := self.snapshot.spec) is not None and spec.history.explored:
            known = self.snapshot.trials
            trials = [replace(trial, params=spec.completed(trial.params)) for trial in known]
            object.__setattr__(self, "snapshot", replace(self.snapshot, trials=trials))

    @classmethod
    def read(cls, ledger: Ledger, sweep: str) -> Record:
        """Read a sweep from its ledger; raises UsageError if there is none of that name."""
        state, events = SweepState(), list(ledger.events(sweep))
        for sequence, event in enumerate(events, 1):
            state.apply(event, sequence)
        info = next(info for info in ledger.sweeps() if info.name == sweep)
        snapshot = Snapshot.of(state, info.state, info.seconds)
        return cls(
            snapshot,
            state.environment,
            [event for event in events if isinstance(event, Noted)],
            read_confirmation(ledger, snapshot),
        )

    @classmethod
    def stored(cls, store: str, snapshot: Snapshot) -> Record:
        """The sweep at that moment, with the rest from its store if that can still be read."""
        from automl.ledger import Ledger

        try:
            ledger = Ledger.open(store, readonly=True)
        except StoreError:
            return cls.of(snapshot)
        try:
            again = read_confirmation(ledger, snapshot)
            found = cls.read(ledger, snapshot.sweep)
            return replace(found, snapshot=snapshot, confirmation=again)
        except AutomlError:
            return cls.of(snapshot)
        finally:
            ledger.close()

    @classmethod
    def of(cls, snapshot: Snapshot, confirmation: Confirmation | None = None) -> Record:
        """The part that is known without a ledger, and the runs of `automl confirm`."""
        return cls(snapshot, confirmation=confirmation)

    @property
    def spec(self) -> SweepSpec:
        """The settings of the sweep."""
        assert self.snapshot.spec is not None, "a sweep that was run has its settings"
        return self.snapshot.spec

    @property
    def space(self) -> Space:
        """The search space."""
        return self.spec.known_space

    @property
    def goal(self) -> Goal:
        """The first goal."""
        return self.snapshot.goals[0]

    @property
    def trials(self) -> Sequence[Trial]:
        """Every trial by number."""
        return self.snapshot.trials

    def scored(self) -> list[tuple[Trial, float]]:
        """The trials with a value for the first goal, the best first."""
        found = [
            (trial, value)
            for trial in self.trials
            if (value := self.snapshot.value(trial)) is not None
        ]
        return sorted(found, key=lambda item: (self.snapshot.losses(item[0]), item[0].number))
