"""Where a sweep keeps its artifacts, and deleting checkpoints that are no longer needed."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from automl.core import SweepSpec, Trial, TrialState, ranking
from automl.core.arguments import NAME
from automl.core.text import shell_line
from automl.errors import StoreError, UsageError
from workers.artifacts.copies import SweepArtifacts, retried
from workers.artifacts.location import NONE
from workers.failures import one_line
from workers.files.folder import Folder
from workers.protocol import DISPOSABLE

REMOVE_SECONDS: Final = 30.0  # until the removal of a trial's checkpoints gives up


def artifacts_of(spec: SweepSpec) -> SweepArtifacts | None:
    """The artifacts of a sweep; None if it keeps its files in its store."""
    if spec.artifacts in ("", NONE) or not spec.artifacts_folder:
        return None
    if not NAME.fullmatch(spec.artifacts_folder):
        raise UsageError(
            f"the ledger names {spec.artifacts_folder!r} as the sweep's folder of artifacts, which "
            "is not a valid name: the ledger was changed by somebody else"
        )
    return SweepArtifacts(spec.artifacts, spec.artifacts_folder)


def check_repeated(stored: SweepSpec, given: str) -> None:
    """Check that a person names the location that the ledger names: it may be a stranger's.

    Args:
        stored: from the ledger.
        given: the location of this call; "" for none.

    Raises:
        UsageError: they differ.
    """
    kept = stored.artifacts
    if kept in ("", NONE) or given in (kept, NONE):
        return
    other = f", not in {given}" if given else ""
    raise UsageError(
        f"the files of the sweep {stored.name} are in {kept}{other}. A location outside of the "
        f"store is used only if you name it: add {shell_line(['--artifacts', kept])} "
        f"(artifacts={kept!r} in Python); or go on without its files: --artifacts {NONE}"
    )


def with_artifacts(spec: SweepSpec, stored: SweepSpec) -> SweepSpec:
    """The spec with the sweep's own folder at its location, which is new for a new sweep.

    Raises:
        UsageError: the sweep has its files at another location, or only the ledger names it.
    """
    check_repeated(stored, "" if spec.received else spec.artifacts)
    if spec.artifacts in ("", NONE):
        return replace(spec, artifacts_folder=stored.artifacts_folder)
    folder = stored.artifacts_folder or f"{spec.name[:50]}-{secrets.token_hex(6)}"
    return replace(spec, artifacts_folder=folder)


class ArtifactRemover:
    """Removes the checkpoints of trials from the location in a thread, so that nobody waits.

    Args:
        artifacts: of the sweep.
    """

    def __init__(self, artifacts: SweepArtifacts) -> None:
        self._artifacts = artifacts
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="automl-artifacts")
        self._begun: list[Future[None]] = []

    def remove(self, number: int) -> None:
        """Remove the checkpoints of a trial soon."""
        self._begun.append(self._thread.submit(self._remove, number))

    def problems(self) -> list[str]:
        """What could not be removed since the last call, each for a person."""
        done = [future for future in self._begun if future.done()]
        self._begun = [future for future in self._begun if not future.done()]
        errors = [error for future in done if (error := future.exception()) is not None]
        return [f"{self._artifacts.location}: {one_line(error)}" for error in errors]

    def close(self) -> None:
        """Wait for what was begun."""
        self._thread.shutdown()

    def _remove(self, number: int) -> None:
        retried(lambda: self._artifacts.forget_checkpoints(number), REMOVE_SECONDS)


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
