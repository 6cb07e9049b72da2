"""Compares two programs by pairs of runs: is B better than A?

The runs are the trials of an ordinary sweep, so they are kept like any others. Trials 0 and 1 are
the first pair, 2 and 3 the second one. Both runs of a pair have the same seed. Every other pair
begins with B, so that neither side gains by its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from automl.control.beginning import create
from automl.control.outcomes import writing
from automl.core import (
    Budget,
    Goal,
    Origin,
    PluginChoice,
    Snapshot,
    SweepSpec,
    Trial,
    TrialState,
    ranking,
)
from automl.core.resources import WorkerRange
from automl.core.text import number
from automl.errors import UsageError
from automl.ledger import Ledger
from search_spaces import Choice, Space
from workers.command.command import SIDE

from .beginning import enqueue

KIND: Final = "ab"  # of the sweep, its trials, and the note that holds the answer
A, B = "A", "B"
MAX_FAILURES: Final = 3  # of a side, until the comparison ends
FIRST_PAIRS: Final = 3  # before which no answer is possible if the effect is 1
WORDS: Final = {
    "better": "B is better than A{by}",
    "worse": "B is worse than A{by}",
    "no difference": "B is not better than A, no difference is found: it is {side}{by}",
    "not known": "It is not known whether B is better than A: it is {side} so far{by}",
}


def side_of(trial: int) -> str:
    """The side that the trial of this number runs: A, B, B, A, and so on."""
    return A if trial % 4 in (0, 3) else B


def gains(trials: Sequence[Trial], goal: Goal) -> list[float]:
    """By how much B is better than A, of each pair whose runs have both ended with a value."""
    found = []
    for pair in zip(trials[::2], trials[1::2], strict=False):
        ended = [trial for trial in pair if trial.state.finished]
        values = {side_of(trial.number): ranking.value(trial, goal) for trial in ended}
        losses = {side: goal.loss(one) for side, one in values.items() if one is not None}
        if len(losses) == len(pair):
            found.append(losses[A] - losses[B])
    return found


def failed_runs(trials: Sequence[Trial], side: str) -> list[Trial]:
    """The trials of a side that have failed."""
    failed = [trial for trial in trials if trial.state is TrialState.FAILED]
    return [trial for trial in failed if side_of(trial.number) == side]


@dataclass(frozen=True)
class Comparison:
    """The answer to whether B is better than A.

    Args:
        sweep: that keeps the runs; goal: by which they are compared.
        answer: see `PairedTest`.
        effect: mean gain of the pairs, in units of the metric; None without a pair.
        interval: of the effect, whenever it is looked at; None if there are too few pairs.
        level: of the interval.
        runs: that were begun, of both sides.
        reason: why the answer is not that of the test; "" if it is.
    """

    sweep: str
    goal: Goal
    answer: Answer
    effect: float | None
    interval: tuple[float, float] | None
    level: float
    runs: int
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of `automl ab`."""
        names = ("answer", "effect", "interval", "runs")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        by, side = "", "equal"
        if self.effect:
            side = "better" if self.effect > 0 else "worse"
            by = f" by {number(abs(self.effect))} in {self.goal.metric}"
        if self.interval is not None:
            low, high = map(number, self.interval)
            by += f" ({self.level:.0%} interval of the gain: {low} to {high})"
        reason = f"; {self.reason}" if self.reason else ""
        words = WORDS[self.answer].format(by=by, side=side)
        return f"{words}{reason}; {self.runs} runs, kept as {self.sweep}."


def compared(snapshot: Snapshot, test: PairedTest) -> Comparison:
    """The answer that the trials of a comparison give so far."""
    goal, trials = snapshot.goals[0], snapshot.trials
    found = gains(trials, goal)
    answer, reason = test.answer(found), ""
    failed = {side: failed_runs(trials, side) for side in (A, B)}
    side = max(failed, key=lambda one: len(failed[one]))
    count = len(failed[side])
    if count >= MAX_FAILURES:
        answer = "worse" if not failed[A] else "not known"
    elif answer == "better" and len(failed[B]) > len(failed[A]):
        answer = "not known"  # leaving out its failures would favour B
    if count and (answer == "not known" or count >= MAX_FAILURES):
        reason = f"{side} failed {count} times: {failed[side][-1].message}"
    interval = test.interval(found)
    return Comparison(
        snapshot.sweep,
        goal,
        answer,
        sum(found) / len(found) if found else None,
        interval if math.isfinite(interval[0]) else None,
        1 - 2 * test.alpha,
        sum(trial.attempts > 0 for trial in trials),
        reason,
    )


def of_commands(goal: Goal, command: str, reports: Mapping[str, str], seed: int) -> SweepSpec:
    """The sweep that compares two commands.

    Args:
        command: both, as they were typed.
        reports: how they print the goal's metric.
        seed: from which the seeds of the pairs derive.
    """
    return SweepSpec(
        KIND,
        Space(Choice(SIDE, [A, B])),
        (goal,),
        reports=reports,
        workers=WorkerRange(1, 1),
        seed=seed,
        suggester=PluginChoice("random"),
        paired=True,
        origin=Origin(command=command, folder=str(Path.cwd())),
    )


def compare(
    ledger: Ledger,
    spec: SweepSpec,
    test: PairedTest,
    most_runs: int,
    run: Callable[[SweepSpec], Snapshot],
    *,
    tell: Callable[[Comparison], None] = lambda comparison: None,
) -> tuple[Comparison, Snapshot]:
    """Run pairs until the test has an answer or the budget is used up.

    Args:
        spec: of a new sweep; a name that is in use gets a number.
        most_runs: of both sides together.
        run: runs the waiting trials of the sweep, which has this spec then.
        tell: called with the answer so far before each further round.

    Returns:
        The answer, and the sweep; its state is "interrupted" if somebody has ended the rounds.
    """
    spec = create(ledger, spec, rename=True)
    begun, pairs = 0, FIRST_PAIRS
    while True:
        snapshot = ledger.snapshot(spec.name)
        comparison = compared(snapshot, test)
        fails = any(len(failed_runs(snapshot.trials, side)) >= MAX_FAILURES for side in (A, B))
        room = (most_runs - begun) // 2
        if comparison.answer != "not known" or room <= 0 or fails:
            break
        if begun:
            tell(comparison)
        end = begun + 2 * min(room, pairs)
        sides = [{SIDE: side_of(number)} for number in range(begun, end)]
        enqueue(ledger, spec.name, sides, KIND)
        begun, pairs = end, 1
        snapshot = run(replace(spec, budget=Budget(trials=begun)))
        if snapshot.state != "finished":
            return compared(ledger.snapshot(spec.name), test), snapshot
    with writing(ledger, spec.name) as writer:
        writer.note(KIND, str(comparison))
    return comparison, snapshot


Array = NDArray[np.float64]
Answer = Literal["better", "worse", "no difference", "not known"]

LEAST_PAIRS: Final = 2  # for a variance
MISSED: Final = 0.1  # share of effects that may be missed
_SPENT: Final = 0.93  # of each error: the rest is for what the simulation does not know
_HORIZON: Final = 30.0  # pairs that are simulated if the effect is 1
_NUM_PATHS: Final = 20_000
_WIDTH: Final = 8.0  # half of the range of the integral, in about one standard deviation
_NODES: Final = 200  # of the integral
_GRID: Final = np.linspace(-1.0, 1.0, 401)  # of `_share`


@dataclass(frozen=True)
class PairedTest:
    """Whether differences of pairs have a mean above 0, below 0, or about 0.

    Differences are assumed to be independent and normal.

    Args:
        alpha: largest probability of "better" without a difference, and of "worse", from 0.001 to
            0.3.
        effect: the effect that is found with a probability of at least 90%, as a multiple of the
            standard deviation of the differences, from 0.25 to 10.

    Raises:
        UsageError: an argument is out of its range.
    """

    alpha: float = 0.05
    effect: float = 1.0

    def __post_init__(self) -> None:
        if not (0.001 <= self.alpha <= 0.3 and 0.25 <= self.effect <= 10):
            ranges = "alpha is from 0.001 to 0.3, effect is from 0.25 to 10"
            raise UsageError(f"{ranges}, got {self.alpha:g} and {self.effect:g}")

    def answer(self, differences: Sequence[float]) -> Answer:
        """The answer after these differences; "not known" if more are needed."""
        count = len(differences)
        if count < LEAST_PAIRS:
            return "not known"
        share = _share(np.asarray(differences, dtype=np.float64))
        above, below = _log_ratio(count, self.effect, np.array([share, -share]))
        accepted, rejected = _bounds(self.alpha, self.effect)
        if above >= accepted:
            return "better"
        if below >= accepted:
            return "worse"
        return "no difference" if max(above, below) <= rejected else "not known"

    def interval(self, differences: Sequence[float]) -> tuple[float, float]:
        """An interval of the mean that holds whenever it is looked at, with 1 - 2 alpha.

        It holds each mean that the test does not reject on either side, so it is above 0 exactly
        if the answer is "better". It is infinite as long as nothing can be rejected.
        """
        count, bound = len(differences), _bounds(self.alpha, self.effect)[0]
        ratios = _log_ratio(max(count, 1), self.effect, _GRID)
        if count < LEAST_PAIRS or ratios[-1] < bound:
            return -math.inf, math.inf
        share = float(np.interp(bound, ratios, _GRID))
        critical = share * math.sqrt((count - 1) / (1 - share**2)) if share < 1 else math.inf
        deviation = float(np.std(differences, ddof=1))
        half = critical * deviation / math.sqrt(count) if deviation else 0.0
        mean = float(np.mean(differences))
        return mean - half, mean + half

    @property
    def most_pairs(self) -> int:
        """The number of pairs after which almost every comparison of such an effect has ended."""
        return math.ceil(_HORIZON / self.effect**2) if self.effect < 1 else round(_HORIZON)


def _share(differences: Array) -> float:
    """t / sqrt(t² + n - 1) of the t statistic of n differences: from -1 to 1; 0 if all are 0."""
    scale = float(np.abs(differences).max())
    if scale == 0:
        return 0.0
    scaled = differences / scale  # squares must not overflow
    return float(np.clip(scaled.sum() / math.sqrt(len(scaled) * (scaled**2).sum()), -1, 1))


def _log_ratio(count: int, effect: float, shares: Array) -> Array:
    """Logarithm of the likelihood of an effect divided by that of none, for each of `shares` (k).

    The noncentral t density divided by the central one is exp(-d²/2) E[exp(d share X)], with the
    noncentrality d = effect sqrt(n), and X of the chi distribution with n degrees of freedom.
    """
    slope = effect * math.sqrt(count) * shares[:, None]
    mode = (slope + np.sqrt(slope**2 + 4 * (count - 1))) / 2  # of the integrand
    nodes = np.maximum(mode + np.linspace(-_WIDTH, _WIDTH, _NODES), 1e-9)
    logs = (count - 1) * np.log(nodes) - nodes**2 / 2 + slope * nodes
    highest = logs.max(axis=1)
    steps = np.diff(nodes, axis=1)
    heights = np.exp(logs - highest[:, None])
    area = (steps * (heights[:, 1:] + heights[:, :-1]) / 2).sum(axis=1)
    scale = (count / 2 - 1) * math.log(2) + math.lgamma(count / 2)
    found: Array = highest + np.log(area) - scale - effect**2 * count / 2
    return found


@cache
def _bounds(alpha: float, effect: float) -> tuple[float, float]:
    """Bounds of the log ratio: from the first on an effect is there, up to the second it is not.

    Each is a quantile over simulated paths: `alpha` of those without an effect reach the first one
    before they end without a difference, and `MISSED` of those with the effect end before.
    """
    none, some = (_paths(effect, mean) for mean in (0.0, effect))
    larger_of_none, larger_of_some = np.maximum(*none), np.maximum(*some)
    rejected = math.log(MISSED)
    for _ in range(3):
        ended = np.maximum.accumulate(larger_of_none <= rejected, axis=1)
        highest = np.where(ended, -np.inf, none[0]).max(axis=1)  # until both are at most that
        accepted = float(np.quantile(highest, 1 - _SPENT * alpha))
        ended = np.maximum.accumulate(larger_of_some >= accepted, axis=1)
        lowest = np.where(ended, np.inf, larger_of_some).min(axis=1)
        rejected = float(np.quantile(lowest, _SPENT * MISSED))
    return accepted, rejected


def _paths(effect: float, mean: float) -> tuple[Array, Array]:
    """Log ratios of simulated differences of this mean: for an effect above 0, and below it."""
    pairs = PairedTest(effect=effect).most_pairs
    paths = min(_NUM_PATHS, int(3e6 / pairs))
    differences = np.random.default_rng(0).normal(mean, 1.0, (paths, pairs))
    counts = np.arange(1, pairs + 1)
    squares = (differences**2).cumsum(axis=1)
    shares = (differences.cumsum(axis=1) / np.sqrt(counts * squares))[:, LEAST_PAIRS - 1 :]
    above, below = np.empty_like(shares), np.empty_like(shares)
    for place, count in enumerate(counts[LEAST_PAIRS - 1 :]):
        ratios = _log_ratio(int(count), effect, _GRID)
        above[:, place] = np.interp(shares[:, place], _GRID, ratios)
        below[:, place] = np.interp(-shares[:, place], _GRID, ratios)
    return above, below
