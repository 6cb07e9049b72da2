"""Checkpoints that nobody can need any more are deleted, and those of a sweep together stay within a limit."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from automl.core import ranking
from automl.core.spec import SweepSpec
from automl.core.trial import Trial, TrialState

FREE_SHARE: Final = 0.5  # of the free disk, where no limit is given
_SPARED: Final = (TrialState.PAUSED, TrialState.INTERRUPTED, TrialState.RUNNING, TrialState.WAITING)


class Checkpoints:
    """What the trials of a sweep have on this machine's disk.

    A trial that may run again needs its checkpoint, and so does whoever wants the best model. Others that failed or
    were stopped lose theirs at once. Beyond the limit those of completed trials follow, the worst first, and then
    those of paused ones, which are stopped by that.

    Args:
        spec: of the sweep; folder: the sweep's own.
    """

    def __init__(self, spec: SweepSpec, folder: Path) -> None:
        self._spec, self._folder = spec, folder
        self._bytes: dict[int, int] = {}
        self._limit = spec.disk_bytes

    def tidy(self, changed: Trial, trials: Sequence[Trial]) -> list[int]:
        """An attempt of a trial has ended; returns the paused trials that have lost their checkpoint."""
        size = _size(self._place(changed.number))
        if size:
            self._bytes[changed.number] = size
        if not self._bytes:
            return []
        best = self._best(trials)
        for number in list(self._bytes):
            if (
                trials[number].state in (TrialState.STOPPED, TrialState.FAILED)
                and number not in best
            ):
                self._delete(number)
        return self._shrink(trials, best)

    def _shrink(self, trials: Sequence[Trial], best: set[int]) -> list[int]:
        limit, lost = self._allowed(), []
        if sum(self._bytes.values()) <= limit:
            return []
        done = [n for n in self._bytes if trials[n].state not in _SPARED and n not in best]
        paused = [n for n in self._bytes if trials[n].state is TrialState.PAUSED and n not in best]
        for number in [*self._worst_first(done, trials), *self._worst_first(paused, trials)]:
            if sum(self._bytes.values()) <= limit:
                break
            self._delete(number)
            if number in paused:
                lost.append(number)
        return lost

    def _allowed(self) -> int:
        if self._limit is None:
            free = shutil.disk_usage(self._folder if self._folder.exists() else Path()).free
            self._limit = int(FREE_SHARE * (free + sum(self._bytes.values())))
        return self._limit

    def _best(self, trials: Sequence[Trial]) -> set[int]:
        spec = self._spec
        found = ranking.pareto(
            trials, spec.goals, spec.constraints, last_report_counts=spec.last_report_counts
        )
        return {trial.number for trial in found}

    def _worst_first(self, numbers: Sequence[int], trials: Sequence[Trial]) -> list[int]:
        goal = self._spec.goals[0]

        def loss(number: int) -> float:
            worth = ranking.value(trials[number], goal, self._spec.constraints)
            return float("inf") if worth is None else goal.loss(worth)

        return sorted(numbers, key=loss, reverse=True)

    def _place(self, number: int) -> Path:
        return self._folder / "trials" / str(number) / "checkpoints"

    def _delete(self, number: int) -> None:
        shutil.rmtree(self._place(number), ignore_errors=True)
        self._bytes.pop(number)


def _size(folder: Path) -> int:
    try:
        return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    except OSError:
        return 0
