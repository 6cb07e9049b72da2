"""Deletes checkpoints that are no longer needed and keeps those of a sweep below a disk limit."""

import contextlib
import shutil
from collections.abc import Sequence
from typing import Final

from automl.core import SweepSpec, Trial, TrialState, ranking
from workers.files.folder import Folder

FREE_SHARE: Final = 0.5  # of the free disk, if the spec sets no limit


class CheckpointCleanup:
    """Deletes checkpoints on this machine's disk.

    The best trials and those that may run again keep their checkpoints. Other failed or stopped
    trials lose theirs at once. Above the limit, completed trials lose theirs, the worst first;
    then paused trials do, which are stopped thereby.

    Args:
        spec: of the sweep.
        files: the sweep's folder.
    """

    def __init__(self, spec: SweepSpec, files: Folder) -> None:
        self._spec = spec
        self._files = files
        self._bytes: dict[int, int] = {}
        self._limit = spec.disk_bytes

    def clean(self, changed: Trial, trials: Sequence[Trial]) -> list[int]:
        """Clean up after an attempt of `changed`; returns paused trials that lost theirs."""
        size = _size(self._checkpoints(changed.number))
        if size:
            self._bytes[changed.number] = size
        if not self._bytes:
            return []
        best = self._best(trials)
        for number in list(self._bytes):
            over = trials[number].state in (TrialState.STOPPED, TrialState.FAILED)
            if over and number not in best:
                self._delete(number)
        return self._shrink(trials, best)

    def _shrink(self, trials: Sequence[Trial], best: set[int]) -> list[int]:
        limit = self._allowed()
        lost: list[int] = []
        if sum(self._bytes.values()) <= limit:
            return []
        others = [n for n in self._bytes if n not in best]
        done = [n for n in others if trials[n].state.finished]
        paused = [n for n in others if trials[n].state is TrialState.PAUSED]
        for number in [*self._worst_first(done, trials), *self._worst_first(paused, trials)]:
            if sum(self._bytes.values()) <= limit:
                break
            self._delete(number)
            if number in paused:
                lost.append(number)
        return lost

    def _allowed(self) -> int:
        if self._limit is None:
            with self._files.descriptor() as folder:
                free = shutil.disk_usage(folder).free
            self._limit = int(FREE_SHARE * (free + sum(self._bytes.values())))
        return self._limit

    def _best(self, trials: Sequence[Trial]) -> set[int]:
        spec = self._spec
        return {trial.number for trial in ranking.pareto(trials, spec.goals, spec.constraints)}

    def _worst_first(self, numbers: Sequence[int], trials: Sequence[Trial]) -> list[int]:
        goal = self._spec.goals[0]

        def loss(number: int) -> float:
            value = ranking.value(trials[number], goal, self._spec.constraints)
            return float("inf") if value is None else goal.loss(value)

        return sorted(numbers, key=loss, reverse=True)

    def _checkpoints(self, number: int) -> Folder:
        return self._files / "trials" / str(number) / "checkpoints"

    def _delete(self, number: int) -> None:
        with contextlib.suppress(OSError):
            self._checkpoints(number).remove()
        self._bytes.pop(number)


def _size(folder: Folder) -> int:
    try:
        return folder.size()
    except OSError:
        return 0
