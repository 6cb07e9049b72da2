"""Whether sweeps, or trials, differ by more than noise.

One value each can never tell: the difference of two values is compared with the spread of repeated
ones. If nothing was repeated, the answer says so and names the command that repeats it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from automl.core import Goal, Trial
from automl.core.names import companion
from automl.core.text import goal_value, number

from .confirmations import KIND, LEVEL, identity
from .record import Record

if TYPE_CHECKING:
    from automl.ledger import Ledger

    from .effects import Insight

WELCH: Final = "Welch's t test"
FORECAST: Final = "prediction interval of the surrogate"
DRAWS: Final = 2000
IDLE: Final = frozenset({"name", "seed", "explored"})  # of a specification: no setting


@dataclass(frozen=True)
class Sample:
    """The values of one thing that is compared.

    Args:
        name: of the thing; values: of the goal, one for each repetition.
    """

    name: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class Difference:
    """Whether one thing is better than another one.

    Args:
        better, worse: what is compared, by the values that are known.
        lead: by how much; None if a value is not known.
        interval: of the lead, 95%; None if it cannot be known.
        method: that gave the interval; p: its p value if it is a test.
        why_unknown: what is missing, and what to do; "" if the difference can be judged.
    """

    better: str
    worse: str
    lead: float | None
    interval: tuple[float, float] | None = None
    method: str = ""
    p: float | None = None
    why_unknown: str = ""

    @property
    def exceeds_noise(self) -> bool | None:
        """Whether the interval excludes no difference; None if it cannot be known."""
        return None if self.interval is None else self.interval[0] > 0

    def __str__(self) -> str:
        """The difference in a sentence."""
        if self.interval is None:
            names = f"{self.better} and {self.worse}"
            return f"Nothing is known about the difference of {names}. {self.why_unknown}"
        low, high = (number(end) for end in self.interval)
        size = "more than noise" if self.exceeds_noise else "within noise"
        found = f"p = {self.p:.2g}" if self.p is not None else "no p value"
        lead = f"{self.better} leads {self.worse} by {number(self.lead)}, which is {size}"
        return f"{lead}: 95% interval {low} to {high}, {self.method}, {found}."

    def to_dict(self) -> dict[str, Any]:
        """The difference as JSON data."""
        return vars(self) | {"exceeds_noise": self.exceeds_noise, "words": str(self)}


def welch(goal: Goal, one: Sample, other: Sample) -> Difference:
    """Compare the means of two samples with two values each at least.

    Welch, "The generalization of Student's problem when several different population variances are
    involved", Biometrika, 1947.
    """
    from scipy.stats import t

    ordered = sorted((one, other), key=lambda sample: goal.loss(float(np.mean(sample.values))))
    first, second = (np.array([goal.loss(v) for v in sample.values]) for sample in ordered)
    lead = float(second.mean() - first.mean())
    parts = [float(losses.var(ddof=1)) / len(losses) for losses in (first, second)]
    error = math.sqrt(sum(parts))
    if error == 0:
        low, p = lead, float(lead == 0)
        return Difference(ordered[0].name, ordered[1].name, lead, (low, lead), WELCH, p)
    degrees = sum(parts) ** 2 / sum(
        part**2 / (len(losses) - 1) for part, losses in zip(parts, (first, second), strict=True)
    )
    half = float(t.ppf(0.5 + LEVEL / 2, degrees)) * error
    p = 2 * float(t.sf(lead / error, degrees))
    interval = (lead - half, lead + half)
    return Difference(ordered[0].name, ordered[1].name, lead, interval, WELCH, p)


def between_sweeps(ledger: Ledger, names: Sequence[str]) -> dict[str, Any]:
    """Compare the settings of sweeps, and the configurations that they found.

    Settings are compared by the best values of sweeps that differ in their seed alone;
    configurations by the new runs that `automl confirm` made of them.
    """
    records = [Record.read(ledger, name) for name in names]
    goal = records[0].goal
    alike = [one for one in records if one.goal == goal]
    groups: dict[str, list[Record]] = {}
    for record in alike:
        settings = {k: str(v) for k, v in vars(record.spec).items() if k not in IDLE}
        settings["space"] = str(record.spec.space.to_dict())
        groups.setdefault(str(sorted(settings.items())), []).append(record)
    runs = [_confirmed(one) for one in alike]
    return {
        "left_out": [one.snapshot.sweep for one in records if one.goal != goal],
        "settings": [one.to_dict() for one in _settings(goal, list(groups.values()))],
        "configurations": [one.to_dict() for one in _leads(goal, runs, _confirm)],
    }


def _settings(goal: Goal, groups: list[list[Record]]) -> list[Difference]:
    samples = []
    for group in groups:
        seeds = {record.spec.seed: record for record in group}  # a seed again is no new sample
        values = [_best_value(record) for record in seeds.values()]
        known = tuple(value for value in values if value is not None)
        samples.append(Sample(", ".join(one.snapshot.sweep for one in group), known))
    if len(samples) == 1:
        return []
    return _leads(goal, samples, _more_seeds)


def _leads(
    goal: Goal, samples: Sequence[Sample], missing: Callable[[str], str]
) -> list[Difference]:
    """The best sample against each other one; `missing` says what a sample needs."""
    known = [sample for sample in samples if sample.values]
    if len(samples) < 2:
        return []
    first = min(known, key=lambda s: goal.loss(float(np.mean(s.values))), default=samples[0])
    found = []
    for other in samples:
        if other is first:
            continue
        few = next((one.name for one in (first, other) if len(one.values) < 2), None)
        if few is not None:
            both = first.values and other.values
            means = [goal.loss(float(np.mean(s.values))) for s in (first, other)] if both else []
            lead = means[1] - means[0] if both else None
            unknown = missing(few)
            found.append(Difference(first.name, other.name, lead, why_unknown=unknown))
        else:
            found.append(welch(goal, first, other))
    return found


def _more_seeds(few: str) -> str:
    return (
        f"Each setting needs two sweeps at least that differ only in their seed; {few} is alone. "
        "Run it again with another seed."
    )


def _confirm(sweep: str) -> str:
    return f"The best of {sweep} was not trained again twice: automl confirm {sweep}"


def _best_value(record: Record) -> float | None:
    best = record.snapshot.best
    return None if best is None else record.value(best)


def _confirmed(record: Record) -> Sample:
    """The new runs of the best configuration of a sweep."""
    found = record.confirmation
    return Sample(record.snapshot.sweep, found.repeats[0].values if found else ())


def between_trials(
    ledger: Ledger, chosen: Sequence[tuple[Record, Sequence[Insight], int]]
) -> list[dict[str, Any]]:
    """Compare the best of some trials with each other one.

    Args:
        chosen: of each trial its sweep, the surrogates of the sweep, and its number.
    """
    goal = chosen[0][0].goal
    rows = [(record, insights, record.trials[n]) for record, insights, n in chosen]
    rows = [row for row in rows if row[0].goal == goal and row[0].value(row[2]) is not None]
    if len(rows) < 2:
        return []
    several = len({row[0].snapshot.sweep for row in rows}) > 1
    samples = [_repeats(ledger, record, trial, several) for record, _, trial in rows]
    order = sorted(
        range(len(rows)), key=lambda i: goal.loss(float(rows[i][0].value(rows[i][2]) or 0.0))
    )
    first = order[0]
    found = []
    for other in order[1:]:
        pair = samples[first], samples[other]
        if all(len(sample.values) > 1 for sample in pair):
            found.append(welch(goal, *pair))
        else:
            found.append(_forecast(goal, rows[first], rows[other], pair))
    return [one.to_dict() for one in found]


def _repeats(ledger: Ledger, record: Record, trial: Trial, several: bool) -> Sample:
    """The values of a trial and of all others with its configuration, new runs too."""
    key = identity(record.space, trial.params)
    sweep = record.snapshot.sweep
    every = [(record.snapshot, record.trials)]
    again = companion(sweep, KIND)
    if ledger.exists(again):
        snapshot = ledger.snapshot(again)
        every.append((snapshot, snapshot.trials))
    values = [
        goal_value(one, snapshot)
        for snapshot, trials in every
        for one in trials
        if one.state.finished and identity(record.space, one.params) == key
    ]
    name = f"trial {trial.number}" + (f" of {sweep}" if several else "")
    return Sample(name, tuple(value for value in values if value is not None))


def _forecast(
    goal: Goal,
    one: tuple[Record, Sequence[Insight], Trial],
    other: tuple[Record, Sequence[Insight], Trial],
    pair: tuple[Sample, Sample],
) -> Difference:
    """The lead in another run of both, by the surrogate of their sweep."""
    lead = goal.loss(float(other[0].value(other[2]) or 0.0)) - goal.loss(
        float(one[0].value(one[2]) or 0.0)
    )
    insight = next((i for i in one[1] if i.model.metric == goal.metric and not i.doubt), None)
    names = pair[0].name, pair[1].name
    if one[0] is not other[0] or insight is None:
        sweeps = " and ".join(
            dict.fromkeys(f"automl confirm {row[0].snapshot.sweep}" for row in (one, other))
        )
        why = f"Each configuration ran once, and no surrogate knows the noise: {sweeps}"
        return Difference(*names, lead, why_unknown=why)
    draws = [
        insight.model.another_run(row[0].space.encode([row[2].params]), DRAWS, seed)
        for seed, row in enumerate((one, other))
    ]
    sign = insight.model.sign
    low, high = np.quantile(sign * (draws[1] - draws[0]), [0.5 - LEVEL / 2, 0.5 + LEVEL / 2])
    return Difference(*names, lead, (float(low), float(high)), FORECAST)
