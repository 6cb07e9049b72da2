"""Asynchronous successive halving, ASHA.

Source: Li et al., "A system for massively parallel hyperparameter tuning", MLSys 2020.
"""

import math
from collections.abc import Sequence
from heapq import nsmallest
from itertools import accumulate
from typing import Any, Final

from automl.core import Trial, TrialState

from ._curves import LossVector, TrialCurves, WarmUp, progress, ranked
from .base import CONTINUE, Decision, Stopper

MAX_SORTED: Final = 300  # trials of a rung that are sorted by several goals, the newest


class Rung:
    """The trials that reached one level, with their losses, and those that are paused there."""

    def __init__(self) -> None:
        self.losses: dict[int, LossVector] = {}
        self.promoted: set[int] = set()
        self.paused: set[int] = set()

    def place(self, number: int) -> int:
        """How many trials are better than this one."""
        mine = self.losses[number], number
        if len(mine[0]) == 2:
            return sum((losses, other) < mine for other, losses in self.losses.items())
        numbers = sorted({*list(self.losses)[-MAX_SORTED:], number})
        order = ranked([self.losses[n] for n in numbers])
        return order.index(numbers.index(number)) * len(self.losses) // len(numbers)

    def best_paused(self) -> int | None:
        """The best trial that is paused here."""
        best = nsmallest(MAX_SORTED, ((self.losses[number], number) for number in self.paused))
        return best[ranked([losses for losses, _ in best])[0]][1] if best else None


class AshaStopper(Stopper):
    """Pauses a trial at each level unless it is among the best 1/`factor` that reached the level.

    Each level is `factor` times as far as the one before. A paused trial resumes once it is among
    the best of its rung; a free worker takes the trial of the highest level first.

    If trials cannot pause, the others stop, and the best of a level always goes on: nobody could
    bring it back later. (The stopping variant; Optuna's `SuccessiveHalvingPruner` does the same.)

    Args:
        grace: progress of the first level: steps, or seconds if a goal has a time limit. None for
            the progress of the first report; then the warm-up is learned too (`WarmUp`).
        factor: between levels, and of the trials that go on, at least 2.
        brackets: trials of bracket s are not compared at the first s levels (`hyperband`).

    Raises:
        UsageError: an option is out of its range.
    """

    name = "asha"

    def __init__(
        self,
        *args: Any,
        grace: float | None = None,
        factor: int = 3,
        brackets: int = 1,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.factor = self.checked("factor", factor, "at least 2", factor >= 2)
        self.brackets = self.checked("brackets", brackets, "at least 1", brackets >= 1)
        self._first: float | None = self.checked_grace(grace)  # progress of level 0
        self.warmup = WarmUp(self.goals, end=grace)
        self._rungs: dict[tuple[int, int], Rung] = {}  # by bracket and level
        self._level: dict[int, int] = {}  # the highest level that each trial reached
        self._attempt: dict[int, int] = {}  # of the newest report of each trial

    def observe(self, trial: Trial) -> None:
        self.warmup.observe(trial)
        number, bracket = trial.number, self.bracket(trial.number)
        if self._first is None:
            self._first = self._first_level(trial)
        if self._first is not None and trial.reports:
            self._climb(trial, bracket)
        rung = self._rungs.get((bracket, self._level.get(number, -1)))
        if rung is not None and number in rung.losses:
            is_paused = trial.state is TrialState.PAUSED and number not in rung.promoted
            (rung.paused.add if is_paused else rung.paused.discard)(number)

    def decide(self, trial: Trial, trials: Sequence[Trial]) -> Decision:
        """Pause at a level that the trial has just reached, unless it is among the best there."""
        number, level = trial.number, self._level.get(trial.number, -1)
        rung = self.waiting_rung(number)
        if rung is None or (
            self.max_steps is not None and trial.reports[-1].step >= self.max_steps
        ):
            return CONTINUE
        place = rung.place(number)
        quota = len(rung.losses) // self.factor
        if not self.can_pause:
            quota = max(quota, 1)  # the leader could never come back
        if place < quota:
            rung.promoted.add(number)
            return CONTINUE
        go_on = f"the best {quota} go on" if quota else "too few to choose from yet"
        return Decision(
            "pause" if self.can_pause else "stop",
            f"{self.name}: {place + 1} of {len(rung.losses)} at {self.level(level):g}, {go_on}",
        )

    def resume(self, trials: Sequence[Trial], *, last: bool = False) -> tuple[int, str] | None:
        """The best paused trial of the highest level that promotes one.

        If no new trial follows (`last`), the highest level promotes its best trial in any case.
        """
        for bracket, level in sorted(self._rungs, key=lambda key: -key[1]):
            rung = self._rungs[bracket, level]
            number = rung.best_paused()
            if number is None or (self.level(level) < self.warmup.end and not last):
                continue
            quota, place = len(rung.losses) // self.factor, rung.place(number)
            if place < quota or (
                last and not rung.promoted and (bracket, level + 1) not in self._rungs
            ):
                rung.promoted.add(number)
                return number, (
                    f"{self.name}: {place + 1} of {len(rung.losses)} at {self.level(level):g}, "
                    f"the best {max(quota, 1)} go on"
                )
        return None

    def next_level(self, number: int) -> float:
        """The progress at which the trial is compared next."""
        return self.level(self._level[number] + 1)

    def level(self, index: int) -> float:
        """The progress of level `index`."""
        return (self._first or 0.0) * float(self.factor**index)

    def bracket(self, number: int) -> int:
        """The bracket of a trial; lower ones have more trials."""
        shares = [self.factor ** (self.brackets - 1 - s) / (s + 1) for s in range(self.brackets)]
        position = (number * 0.6180339887498949) % 1.0 * sum(shares)  # a low-discrepancy sequence
        return sum(position >= end for end in accumulate(shares[:-1]))

    def waiting_rung(self, number: int) -> Rung | None:
        """The rung that a trial reached and was not promoted from; None during the warm-up."""
        level = self._level.get(number, -1)
        rung = self._rungs.get((self.bracket(number), level))
        if rung is None or number not in rung.losses or number in rung.promoted:
            return None
        return None if self.level(level) < self.warmup.end else rung

    def _first_level(self, trial: Trial) -> float | None:
        """The progress of the trial's first report, or the next whose levels hit the last step.

        A report at step 0 is before the training: it is not compared.
        """
        metric = self.goals[0].metric
        if trial.reports.first(metric) is None or progress(trial.reports[-1], self.goals) <= 0:
            return None  # without looking at every report again
        ats = (progress(point, self.goals) for point in trial.reports if metric in point.metrics)
        first = next((at for at in ats if at > 0), None)
        timed = any(goal.within is not None for goal in self.goals)
        if first is None or self.max_steps is None or timed:
            return first
        return self.max_steps / float(
            self.factor ** int(math.log(self.max_steps / first, self.factor) + 1e-9)
        )

    def _climb(self, trial: Trial, bracket: int) -> None:
        newest = trial.reports[-1]
        if self._attempt.setdefault(trial.number, newest.attempt) != newest.attempt:
            self._attempt[trial.number] = newest.attempt
            self._forget_lost(trial, bracket)
        reached = progress(newest, self.goals) * (1 + 1e-9)
        level = self._level.get(trial.number, -1) + 1
        if self.level(level) > reached:
            return
        curves = TrialCurves(trial, self.goals, self.constraints)
        while self.level(level) <= reached:
            losses = curves.losses_at(self.level(level) * (1 - 1e-9))
            if losses is not None and level >= bracket:
                rung = self._rungs.setdefault((bracket, level), Rung())
                rung.losses.setdefault(trial.number, losses)
            below = self._rungs.get((bracket, level - 1))
            if below is not None and trial.number in below.losses:
                below.promoted.add(trial.number)
                below.paused.discard(trial.number)
            self._level[trial.number] = level
            level += 1

    def _forget_lost(self, trial: Trial, bracket: int) -> None:
        """Take a trial out of the rungs that it reached by reports which no longer count.

        An attempt that begins anew replaces the reports of the attempt that was lost.
        """
        curves = TrialCurves(trial, self.goals, self.constraints)
        for level in range(self._level.pop(trial.number, -1) + 1):
            rung = self._rungs.get((bracket, level))
            known = rung.losses.get(trial.number) if rung else None
            if rung and known and known != curves.losses_at(self.level(level) * (1 - 1e-9)):
                del rung.losses[trial.number]
                rung.promoted.discard(trial.number)
                rung.paused.discard(trial.number)
