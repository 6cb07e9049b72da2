"""Trials by what they are to a suggester, kept up to date as they change, so that nobody sorts them again."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from .trial import Trial, TrialState

PENDING = (TrialState.WAITING, TrialState.RUNNING)


class History:
    """The trials of a sweep in two lists by number: pending ones, and those that ended, paused or were interrupted."""

    def __init__(self, trials: Iterable[Trial] = ()) -> None:
        self._known: list[Trial] = []
        self._numbers: list[int] = []
        self._pending: dict[int, Trial] = {}
        for trial in trials:
            self.update(trial)

    @property
    def known(self) -> list[Trial]:
        """Finished, paused and interrupted trials, by number; the list itself, which later updates change."""
        return self._known

    @property
    def pending(self) -> list[Trial]:
        """Waiting and running trials, by number."""
        return [self._pending[number] for number in sorted(self._pending)]

    def running(self) -> list[Trial]:
        """Running trials, by number."""
        return [trial for trial in self.pending if trial.state is TrialState.RUNNING]

    def waiting(self) -> list[Trial]:
        """Waiting trials, by number."""
        return [trial for trial in self.pending if trial.state is TrialState.WAITING]

    def update(self, trial: Trial) -> None:
        """Take in a trial that is new or has changed."""
        if trial.state in PENDING:
            if trial.number not in self._pending:
                self._forget(trial.number)
            self._pending[trial.number] = trial
            return
        self._pending.pop(trial.number, None)
        place = bisect_left(self._numbers, trial.number)
        if place < len(self._numbers) and self._numbers[place] == trial.number:
            self._known[place] = trial
        else:
            self._numbers.insert(place, trial.number)
            self._known.insert(place, trial)

    def _forget(self, number: int) -> None:
        place = bisect_left(self._numbers, number)
        if place < len(self._numbers) and self._numbers[place] == number:
            del self._numbers[place], self._known[place]
