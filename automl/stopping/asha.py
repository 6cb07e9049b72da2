"""Asynchronous successive halving (Li et al., "A system for massively parallel hyperparameter tuning", MLSys 2020)."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import ClassVar, Final

from automl.core.trial import ReportPoint, Trial, TrialState

from ._informative import Informative
from ._merit import Merit, merit_at, progress, ranked
from .base import CONTINUE, Decision, Stopper

MOST_SORTED: Final = 300  # of a rung with several goals: the newest


class Rung:
    """What trials had when they came to one level, and which of them wait there; O(log n) a step for one goal."""

    def __init__(self, single: bool) -> None:
        self._single = single
        self.merits: dict[int, Merit] = {}
        self.gone: set[int] = set()  # went on from here
        self._sorted: list[tuple[Merit, int]] = []
        self._paused: list[tuple[Merit, int]] = []

    def add(self, number: int, merit: Merit) -> None:
        """A trial has come here."""
        self.merits[number] = merit
        insort(self._sorted, (merit, number))

    def pause(self, number: int, waits: bool) -> None:
        """A trial waits here, or does so no more."""
        entry = self.merits[number], number
        place = bisect_left(self._paused, entry)
        there = place < len(self._paused) and self._paused[place] == entry
        if waits and not there:
            self._paused.insert(place, entry)
        elif there and not waits:
            del self._paused[place]

    def place(self, number: int) -> int:
        """How many trials come before this one."""
        if self._single:
            return bisect_left(self._sorted, (self.merits[number], number))
        numbers = sorted({*list(self.merits)[-MOST_SORTED:], number})
        order = ranked([self.merits[n] for n in numbers])
        return order.index(numbers.index(number)) * len(self.merits) // len(numbers)

    def best_paused(self) -> int | None:
        """The best trial that waits here."""
        if not self._paused:
            return None
        waiting = self._paused if self._single else self._paused[:MOST_SORTED]
        return waiting[ranked([merit for merit, _ in waiting])[0] if not self._single else 0][1]


class AshaStopper(Stopper):
    """Every trial pauses at levels that grow by a factor, unless it is among the best part of those that came there.

    A paused trial goes on as soon as it is among these after all; a free worker asks the highest level first. The
    first level is where the first report comes. Where trials cannot be paused they are stopped instead.

    Attributes:
        factor: of the levels, and of those that go on.
        num_brackets: trials of bracket s never pause at the first s levels (`hyperband`).
    """

    name = "asha"
    factor: ClassVar[int] = 3
    num_brackets: ClassVar[int] = 1

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.informative = Informative(self.goals)
        self._first: float | None = None
        self._rungs: dict[tuple[int, int], Rung] = {}  # by bracket and level
        self._at: dict[int, int] = {}  # the highest level that each trial came to

    def observe(self, trial: Trial) -> None:
        """Enter the trial at the levels that it has newly come to."""
        self.informative.observe(trial)
        number, bracket = trial.number, self.bracket(trial.number)
        begun = next(
            (point for point in trial.reports if self.goals[0].metric in point.metrics), None
        )
        if begun is not None:
            if self._first is None:
                self._first = self._begin(begun)
            self._climb(trial, bracket)
        level = self._at.get(number)
        if (
            level is not None
            and (rung := self._rungs.get((bracket, level))) is not None
            and number in rung.merits
        ):
            rung.pause(number, trial.state is TrialState.PAUSED and number not in rung.gone)

    def decide(self, trial: Trial, trials: Sequence[Trial]) -> Decision:
        """Pause at a level that the trial has just come to, unless it is among the best there."""
        number, level = trial.number, self._at.get(trial.number)
        rung = self._rungs.get((self.bracket(number), level)) if level is not None else None
        if (
            rung is None
            or level is None
            or number not in rung.merits
            or number in rung.gone
            or self._is_complete(trial)
            or self._is_early(level)
        ):
            return CONTINUE
        quota, place = len(rung.merits) // self.factor, rung.place(number)
        if place < quota:
            rung.gone.add(number)
            return CONTINUE
        where = f"{place + 1} of {len(rung.merits)} at {self.level(level):g}"
        return Decision(
            "pause" if self.can_pause else "stop", f"{self.name}: {where}, the best {quota} go on"
        )

    def resume(self, trials: Sequence[Trial], *, last: bool = False) -> tuple[int, str] | None:
        """The best paused trial of the highest level that may go on; at the very end the best of the highest level."""
        for bracket, level in sorted(self._rungs, key=lambda key: -key[1]):
            rung = self._rungs[bracket, level]
            number = rung.best_paused()
            if number is None or (self._is_early(level) and not last):
                continue
            quota, place = len(rung.merits) // self.factor, rung.place(number)
            if place < quota or (
                last and not rung.gone and (bracket, level + 1) not in self._rungs
            ):
                rung.gone.add(number)
                where = f"{place + 1} of {len(rung.merits)} at {self.level(level):g}"
                return number, f"{self.name}: {where}, the best {max(quota, 1)} go on"
        return None

    def waiting(self, number: int) -> Rung | None:
        """The rung that a running trial has come to, where it now counts among those that wait; None elsewhere."""
        level = self._at.get(number, -1)
        rung = self._rungs.get((self.bracket(number), level))
        if (
            rung is None
            or number not in rung.merits
            or number in rung.gone
            or self._is_early(level)
        ):
            return None
        rung.pause(number, True)
        return rung

    def next_level(self, number: int) -> float:
        """The progress at which the trial is compared next."""
        return self.level(self._at[number] + 1)

    def level(self, index: int) -> float:
        """The progress at which level `index` is."""
        assert self._first is not None
        return self._first * float(self.factor**index)

    def bracket(self, number: int) -> int:
        """Which bracket a trial is in; the lower ones have more trials."""
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

    def _is_early(self, level: int) -> bool:
        """Whether what trials had there says nothing."""
        return self.level(level) < self.informative.since

    def _is_complete(self, trial: Trial) -> bool:
        return self.max_steps is not None and trial.reports[-1].step >= self.max_steps

    def _begin(self, point: ReportPoint) -> float:
        """The first level: where the first report of a goal came, or the next above it that leads to the last step."""
        first = max(progress(point, self.goals), 1e-9)
        if self.max_steps is None or any(goal.within is not None for goal in self.goals):
            return first
        return self.max_steps / float(
            self.factor ** int(math.log(self.max_steps / first, self.factor) + 1e-9)
        )

    def _climb(self, trial: Trial, bracket: int) -> None:
        reached = progress(trial.reports[-1], self.goals) * (1 + 1e-9)
        level = self._at.get(trial.number, -1) + 1
        while self.level(level) <= reached:
            merit = merit_at(trial, self.level(level) * (1 - 1e-9), self.goals, self.constraints)
            if merit is not None and level >= bracket:
                self._rungs.setdefault((bracket, level), Rung(len(self.goals) == 1)).add(
                    trial.number, merit
                )
            below = self._rungs.get((bracket, level - 1))
            if below is not None and trial.number in below.merits:
                below.gone.add(trial.number)
                below.pause(trial.number, False)
            self._at[trial.number] = level
            level += 1
