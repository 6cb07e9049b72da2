"""Compares two programs by pairs of runs: is B better than A?

The runs are the trials of an ordinary sweep, so they are kept like any others. Trials 0 and 1 are
the first pair, 2 and 3 the second one. Both runs of a pair have the same seed. Every other pair
begins with B, so that neither side gains by its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from automl.control.beginning import create
from automl.control.journal import writing
from automl.core import Budget, Goal, Snapshot, SweepSpec, Trial, TrialState, ranking
from automl.core.resources import WorkerRange
from automl.core.text import number
from automl.ledger import Ledger
from search_spaces import Choice, Space
from workers.command.command import SIDE

from .beginning import enqueue
from .paired_test import Answer, PairedTest

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
        command=command,
        reports=reports,
        workers=WorkerRange(1, 1),
        seed=seed,
        suggester="random",
        paired=True,
        folder=str(Path.cwd()),
    )


def compare(
    ledger: Ledger,
    spec: SweepSpec,
    test: PairedTest,
    most_runs: int,
    run: Callable[[SweepSpec], Snapshot],
    facts: Mapping[str, Any],
    *,
    tell: Callable[[Comparison], None] = lambda comparison: None,
) -> tuple[Comparison, Snapshot]:
    """Run pairs until the test has an answer or the budget is used up.

    Args:
        spec: of a new sweep; a name that is in use gets a number.
        most_runs: of both sides together.
        run: runs the waiting trials of the sweep, which has this spec then.
        facts: to record.
        tell: called with the answer so far before each further round.

    Returns:
        The answer, and the sweep; its state is "interrupted" if somebody has ended the rounds.
    """
    spec = create(ledger, spec, rename=True, facts={KIND: facts})
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
