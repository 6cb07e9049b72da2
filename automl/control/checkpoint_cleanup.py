"""Deletes checkpoints that are no longer needed and keeps those of a sweep below a disk limit."""

import contextlib
import shutil
import sys
from collections.abc import Sequence
from typing import Final

from automl.core import SweepSpec, Trial, TrialState, ranking
from automl.errors import StoreError
from workers.artifacts.copies import SweepArtifacts
from workers.files.folder import Folder
from workers.protocol import DISPOSABLE

from .artifacts import ArtifactRemover

FREE_SHARE: Final = 0.5  # of the free disk, if the spec sets no limit


class CheckpointCleanup:
    """Deletes checkpoints in the store, and at the location of the sweep's artifacts.

    The best trials and those that may run again keep their checkpoints. Other failed or stopped
    trials lose theirs at once. Above the limit, completed trials lose theirs, the worst first;
    then paused trials do, which are stopped thereby.

    Args:
        spec: of the sweep.
        files: the sweep's folder.
        artifacts: of the sweep; None if its trials keep their files in the store.
    """

    def __init__(
        self, spec: SweepSpec, files: Folder, artifacts: SweepArtifacts | None = None
    ) -> None:
        self._spec = spec
        self._files = files
        self._bytes: dict[int, int] = {}
        self._limit = spec.disk_bytes
        self._elsewhere = artifacts is not None
        self._remover = ArtifactRemover(artifacts) if artifacts is not None else None
        self._begun = False

    def clean(self, changed: Trial, trials: Sequence[Trial]) -> list[int]:
        """Clean up after an attempt of `changed`; returns paused trials that lost theirs."""
        for trial in trials if self._elsewhere and not self._begun else (changed,):
            if size := self._size(trial):
                self._bytes[trial.number] = size
        self._begun = True
        if self._elsewhere and changed.state in (TrialState.STOPPED, TrialState.FAILED):
            self._bytes.setdefault(changed.number, 0)  # its last worker may not have said its size
        if not self._bytes:
            return []
        best = self._best(trials)
        for number in list(self._bytes):
            over = trials[number].state in (TrialState.STOPPED, TrialState.FAILED)
            if over and number not in best:
                self._delete(number)
        return self._shrink(trials, best)

    def problems(self) -> list[str]:
        """What could not be deleted since the last call, each for a person."""
        return self._remover.problems() if self._remover else []

    def close(self) -> None:
        """Wait for what is being deleted."""
        if self._remover:
            self._remover.close()

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
        if self._limit is None and self._elsewhere and not self._spec.artifacts.startswith("/"):
            return sys.maxsize  # an object store does not fill up
        if self._limit is None:
            free = self._free()
            self._limit = int(FREE_SHARE * (free + sum(self._bytes.values())))
        return self._limit

    def _free(self) -> int:
        if self._elsewhere:
            return shutil.disk_usage(self._spec.artifacts).free
        return shutil.disk_usage(self._files.path).free

    def _best(self, trials: Sequence[Trial]) -> set[int]:
        spec = self._spec
        return {trial.number for trial in ranking.pareto(trials, spec.goals, spec.constraints)}

    def _worst_first(self, numbers: Sequence[int], trials: Sequence[Trial]) -> list[int]:
        goal = self._spec.goals[0]

        def loss(number: int) -> float:
            value = ranking.value(trials[number], goal, self._spec.constraints)
            return float("inf") if value is None else goal.loss(value)

        return sorted(numbers, key=loss, reverse=True)

    def _checkpoints(self, number: int) -> list[Folder]:
        """The folders of a trial's checkpoints, and of other files that its command writes."""
        folder = self._files / "trials" / str(number)
        return [folder / name for name in folder.names() if name in DISPOSABLE]

    def _delete(self, number: int) -> None:
        with contextlib.suppress(OSError, StoreError):
            for folder in self._checkpoints(number):
                folder.remove()
        if self._remover:
            self._remover.remove(number)
        self._bytes.pop(number)

    def _size(self, trial: Trial) -> int:
        """Bytes of the trial's checkpoints; at a location, of all files of its snapshots."""
        if self._elsewhere:
            return trial.artifact_bytes
        try:
            return sum(folder.size() for folder in self._checkpoints(trial.number))
        except (OSError, StoreError):  # a link is in its place: nothing is read or deleted
            return 0
