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
from automl.core.environment import code_of, difference
from automl.core.text import number, present_folder
from automl.ledger import Ledger
from search_spaces import Choice, Space
from workers.command.command import SIDE
from workers.protocol import Params

from .paired_test import Answer, PairedTest
from .retrain import enqueue

KIND: Final = "ab"
A, B = "A", "B"
MAX_FAILURES: Final = 3  # of a side, until the comparison ends
FIRST_PAIRS: Final = 3  # before which no answer is possible if the effect is 1
NOTE: Final = "ab"  # kind of the note that holds the answer
Sides = Mapping[str, Params]  # the configuration of A and that of B


@dataclass(frozen=True)
class Pair:
    """The runs of A and B with one seed."""

    a: Trial
    b: Trial

    def difference(self, goal: Goal) -> float | None:
        """By how much B is better than A; None if one of them has no value."""
        values = [ranking.value(trial, goal) for trial in (self.a, self.b)]
        found = [goal.loss(value) for value in values if value is not None]
        return found[0] - found[1] if len(found) == len(values) else None


def side_of(trial: int) -> str:
    """The side that the trial of this number runs: A, B, B, A, and so on."""
    return A if trial % 4 in (0, 3) else B


def pairs_of(trials: Sequence[Trial]) -> list[Pair]:
    """The pairs among the trials of a comparison, whether or not they have ended."""
    both = zip(trials[::2], trials[1::2], strict=False)
    return [Pair(*sorted(pair, key=lambda one: side_of(one.number))) for pair in both]


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
        effect: mean difference of the pairs, in units of the metric; above 0 if B is better. None
            without a pair.
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
        return {
            "answer": self.answer,
            "effect": self.effect,
            "interval": None if self.interval is None else list(self.interval),
            "runs": self.runs,
        }

    def __str__(self) -> str:
        metric, gain = self.goal.metric, self.effect
        size = "" if gain is None else f"{number(abs(gain))} in {metric}"
        if self.interval is not None:
            low, high = map(number, self.interval)
            size += f" ({self.level:.0%} interval of the gain: {low} to {high})"
        by = f" by {size}" if size else ""
        so_far = f" so far by {size}" if size else ""
        side = "better" if gain is not None and gain > 0 else "worse"
        words = {
            "better": f"B is better than A{by}",
            "worse": f"B is worse than A{by}",
            "no difference": "B is not better than A, no difference is found"
            + (f": it is {side}{by}" if gain else ": they are equal"),
            "not known": "It is not known whether B is better than A"
            + (f": it is {side}{so_far}" if gain else ""),
        }[self.answer]
        reason = f"; {self.reason}" if self.reason else ""
        runs = f"{self.runs} run{'' if self.runs == 1 else 's'}, kept as {self.sweep}"
        return f"{words}{reason}; {runs}."


def compared(snapshot: Snapshot, test: PairedTest) -> Comparison:
    """The answer that the trials of a comparison give so far."""
    goal, trials = snapshot.goals[0], snapshot.trials
    pairs = pairs_of(trials)
    ended = [pair for pair in pairs if pair.a.state.finished and pair.b.state.finished]
    found = [value for pair in ended if (value := pair.difference(goal)) is not None]
    answer, reason = test.answer(found), ""
    failed = {side: failed_runs(trials, side) for side in (A, B)}
    if len(failed[B]) >= MAX_FAILURES and not failed[A]:
        answer, reason = "worse", f"B failed {len(failed[B])} times: {failed[B][-1].message}"
    elif worst := max(failed.values(), key=len):
        side = A if worst is failed[A] else B
        if answer == "better" and len(failed[B]) > len(failed[A]):
            answer = "not known"  # leaving out its failures would favour B
        if answer == "not known" or len(worst) >= MAX_FAILURES:
            answer, reason = "not known", f"{side} failed {len(worst)} times: {worst[-1].message}"
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


def of_commands(
    goal: Goal, command: str, reports: Mapping[str, str], seed: int
) -> tuple[SweepSpec, Sides]:
    """The sweep that compares two commands, and its sides.

    Args:
        command: both, as they were typed.
        reports: how they print the goal's metric.
        seed: from which the seeds of the pairs derive.
    """
    spec = SweepSpec(
        KIND,
        Space(Choice(SIDE, [A, B])),
        (goal,),
        command=command,
        reports=reports,
        workers=1,
        seed=seed,
        suggester="random",
        paired=True,
        folder=present_folder(),
    )
    return spec, {side: {SIDE: side} for side in (A, B)}


def code_of_commands(programs: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """What is recorded of each side: its command, and commit and diff of the code that it runs."""
    folders = {side: _code_folder(words) for side, words in programs.items()}
    found: dict[str, Any] = {
        side: {"command": list(words), **code_of(folders[side])} for side, words in programs.items()
    }
    if folders[A] != folders[B]:
        found["difference"] = difference(folders[A], folders[B])
    return {KIND: found}


def _code_folder(words: Sequence[str]) -> str:
    """The folder of the first file among the arguments of a command; else the present one."""
    files = (Path(word) for word in words[1:] if "\0" not in word and len(word) < 4096)
    return next((str(path.parent) for path in files if path.is_file()), ".")


def compare(
    ledger: Ledger,
    spec: SweepSpec,
    sides: Sides,
    test: PairedTest,
    most_runs: int,
    run: Callable[[SweepSpec], Snapshot],
    *,
    tell: Callable[[Comparison], None] = lambda comparison: None,
) -> tuple[Comparison, Snapshot]:
    """Run pairs until the test has an answer or the budget is used up.

    Args:
        spec: of a sweep of the ledger, which may have runs already.
        most_runs: of both sides together.
        run: runs the waiting trials of the sweep, which has this spec then.
        tell: called with the answer so far before each further round.

    Returns:
        The answer, and the sweep; its state is "interrupted" if somebody has ended the rounds.
    """
    while True:
        snapshot = ledger.snapshot(spec.name)
        comparison = compared(snapshot, test)
        begun = len(snapshot.trials)
        room = (most_runs - begun) // 2
        waiting = any(not trial.state.finished for trial in snapshot.trials)
        if not waiting:
            if comparison.answer != "not known" or room <= 0 or _fails(snapshot.trials):
                break
            if begun:
                tell(comparison)
            end = begun + 2 * min(room, FIRST_PAIRS if begun == 0 else 1)
            configurations = [sides[side_of(number)] for number in range(begun, end)]
            enqueue(ledger, spec.name, configurations, KIND)
            begun = end
        snapshot = run(replace(spec, budget=Budget(trials=begun)))
        if snapshot.state != "finished":
            return compared(ledger.snapshot(spec.name), test), snapshot
    with writing(ledger, spec.name) as writer:
        writer.note(NOTE, str(comparison))
    return comparison, snapshot


def _fails(trials: Sequence[Trial]) -> bool:
    return any(len(failed_runs(trials, side)) >= MAX_FAILURES for side in (A, B))


def begin(ledger: Ledger, spec: SweepSpec, facts: Mapping[str, Any]) -> SweepSpec:
    """Create the sweep of a comparison; a name that is in use gets a number."""
    return create(ledger, spec, rename=True, facts=facts)
