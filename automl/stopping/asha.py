"""Asynchronous successive halving, ASHA.

Source: Li et al., "A system for massively parallel hyperparameter tuning", MLSys 2020.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from automl.core import ReportPoint, Trial, TrialState

from ._ranking import LossVector, losses_at, progress, ranked
from ._warmup import WarmUp
from .base import CONTINUE, Decision, Stopper

MAX_SORTED: Final = 300  # trials of a rung that are sorted by several goals, the newest


class Rung:
    """The trials that reached one level, and those that are paused there.

    With one goal a step costs O(log n).
    """

    def __init__(self, single: bool) -> None:
        self._single = single
        self.losses: dict[int, LossVector] = {}
        self.promoted: set[int] = set()
        self._sorted: list[tuple[LossVector, int]] = []
        self._paused: list[tuple[LossVector, int]] = []

    def add(self, number: int, losses: LossVector) -> None:
        """Add a trial that reached this level."""
        self.losses[number] = losses
        insort(self._sorted, (losses, number))

    def pause(self, number: int, paused: bool) -> None:
        """Note whether a trial is paused here."""
        entry = self.losses[number], number
        place = bisect_left(self._paused, entry)
        there = place < len(self._paused) and self._paused[place] == entry
        if paused and not there:
            self._paused.insert(place, entry)
        elif there and not paused:
            del self._paused[place]

    def place(self, number: int) -> int:
        """How many trials are better than this one."""
        if self._single:
            return bisect_left(self._sorted, (self.losses[number], number))
        numbers = sorted({*list(self.losses)[-MAX_SORTED:], number})
        order = ranked([self.losses[n] for n in numbers])
        return order.index(numbers.index(number)) * len(self.losses) // len(numbers)

    def best_paused(self) -> int | None:
        """The best trial that is paused here."""
        if not self._paused:
            return None
        if self._single:
            return self._paused[0][1]
        paused = self._paused[:MAX_SORTED]
        return paused[ranked([losses for losses, _ in paused])[0]][1]


class AshaStopper(Stopper):
    """Pauses a trial at each level unless it is among the best 1/`factor` that reached the level.

    The first level is the progress of the first report; each next one is `factor` times as far. A
    paused trial resumes once it is among the best of its rung; a free worker takes the trial of
    the highest level first. If trials cannot pause, they stop.

    Attributes:
        factor: between levels, and of the trials that are promoted.
        num_brackets: trials of bracket s are not compared at the first s levels (`hyperband`).
    """

    name = "asha"
    factor: ClassVar[int] = 3
    num_brackets: ClassVar[int] = 1

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.warmup = WarmUp(self.goals)
        self._first: float | None = None  # progress of level 0
        self._rungs: dict[tuple[int, int], Rung] = {}  # by bracket and level
        self._level: dict[int, int] = {}  # the highest level that each trial reached

    def observe(self, trial: Trial) -> None:
        """Add the trial to the rungs that it newly reached."""
        self.warmup.observe(trial)
        number, bracket = trial.number, self.bracket(trial.number)
        first = trial.reports.first(self.goals[0].metric)
        if first is not None:
            if self._first is None:
                self._first = self._first_level(first)
            self._climb(trial, bracket)
        rung = self._rungs.get((bracket, self._level.get(number, -1)))
        if rung is not None and number in rung.losses:
            rung.pause(number, trial.state is TrialState.PAUSED and number not in rung.promoted)

    def decide(self, trial: Trial, trials: Sequence[Trial]) -> Decision:
        """Pause at a level that the trial has just reached, unless it is among the best there."""
        number, level = trial.number, self._level.get(trial.number, -1)
        rung = self._waiting_rung(number)
        if rung is None or (
            self.max_steps is not None and trial.reports[-1].step >= self.max_steps
        ):
            return CONTINUE
        quota, place = len(rung.losses) // self.factor, rung.place(number)
        if place < quota:
            rung.promoted.add(number)
            return CONTINUE
        where = f"{place + 1} of {len(rung.losses)} at {self.level(level):g}"
        return Decision(
            "pause" if self.can_pause else "stop", f"{self.name}: {where}, the best {quota} go on"
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
                where = f"{place + 1} of {len(rung.losses)} at {self.level(level):g}"
                return number, f"{self.name}: {where}, the best {max(quota, 1)} go on"
        return None

    def waiting(self, number: int) -> Rung | None:
        """Mark a running trial as paused in the rung that it reached; None if it is in none."""
        rung = self._waiting_rung(number)
        if rung is not None:
            rung.pause(number, True)
        return rung

    def next_level(self, number: int) -> float:
        """The progress at which the trial is compared next."""
        return self.level(self._level[number] + 1)

    def level(self, index: int) -> float:
        """The progress of level `index`."""
        assert self._first is not None
        return self._first * float(self.factor**index)

    def bracket(self, number: int) -> int:
        """The bracket of a trial; lower ones have more trials."""
        if self.num_brackets == 1:
            return 0
        shares = [
            self.factor ** (self.num_brackets - 1 - s) / (s + 1) for s in range(self.num_brackets)
        ]
        position = (number * 0.6180339887498949) % 1.0 * sum(shares)  # a low-discrepancy sequence
        for bracket, share in enumerate(shares):
            position -= share
            if position < 0:
                return bracket
        return self.num_brackets - 1

    def _waiting_rung(self, number: int) -> Rung | None:
        """The rung that a trial reached and was not promoted from; None during the warm-up."""
        level = self._level.get(number, -1)
        rung = self._rungs.get((self.bracket(number), level))
        if rung is None or number not in rung.losses or number in rung.promoted:
            return None
        return None if self.level(level) < self.warmup.end else rung

    def _first_level(self, point: ReportPoint) -> float:
        """The progress of the first report, or the next above it whose levels hit the last step."""
        first = max(progress(point, self.goals), 1e-9)
        if self.max_steps is None or any(goal.within is not None for goal in self.goals):
            return first
        return self.max_steps / float(
            self.factor ** int(math.log(self.max_steps / first, self.factor) + 1e-9)
        )

    def _climb(self, trial: Trial, bracket: int) -> None:
        reached = progress(trial.reports[-1], self.goals) * (1 + 1e-9)
        level = self._level.get(trial.number, -1) + 1
        while self.level(level) <= reached:
            losses = losses_at(trial, self.level(level) * (1 - 1e-9), self.goals, self.constraints)
            if losses is not None and level >= bracket:
                rung = self._rungs.setdefault((bracket, level), Rung(len(self.goals) == 1))
                rung.add(trial.number, losses)
            below = self._rungs.get((bracket, level - 1))
            if below is not None and trial.number in below.losses:
                below.promoted.add(trial.number)
                below.pause(trial.number, False)
            self._level[trial.number] = level
            level += 1
