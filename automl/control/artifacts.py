"""Where a sweep keeps its artifacts, and deleting checkpoints that are no longer needed."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from automl.core import SweepSpec, Trial, TrialState, ranking
from automl.core.arguments import NAME
from automl.core.text import shell_line
from automl.errors import StoreError, UsageError
from workers.artifacts.copies import NONE, SweepArtifacts
from workers.failures import one_line
from workers.files.folder import Folder
from workers.protocol import DISPOSABLE


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


class CheckpointCleanup:
    """Deletes the checkpoints of failed and stopped trials, but of the best.

    In the store at once; at the location of the sweep's artifacts in a thread, so nobody waits.

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
        self._artifacts = artifacts
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="automl-artifacts")
        self._begun: list[Future[None]] = []
        self._kept: set[int] = set()  # trials that have checkpoints, or may have some elsewhere

    def clean(self, changed: Trial, trials: Sequence[Trial]) -> None:
        """Clean up after an attempt of `changed`."""
        if self._artifacts is not None or self._checkpoints(changed.number):
            self._kept.add(changed.number)
        over = {n for n in self._kept if trials[n].state in (TrialState.STOPPED, TrialState.FAILED)}
        if over:
            spec = self._spec
            best = ranking.pareto(trials, spec.goals, spec.constraints)
            for number in over - {trial.number for trial in best}:
                self._delete(number)

    def problems(self) -> list[str]:
        """What could not be deleted since the last call, each for a person."""
        done = [future for future in self._begun if future.done()]
        self._begun = [future for future in self._begun if not future.done()]
        errors = [error for future in done if (error := future.exception()) is not None]
        return [f"{self._spec.artifacts}: {one_line(error)}" for error in errors]

    def close(self) -> None:
        """Wait for what is being deleted."""
        self._thread.shutdown()

    def _checkpoints(self, number: int) -> list[Folder]:
        """The folders of a trial's checkpoints, and of other files that its command writes."""
        folder = self._files / "trials" / str(number)
        with contextlib.suppress(OSError, StoreError):  # a link is in its place
            return [folder / name for name in folder.names() if name in DISPOSABLE]
        return []

    def _delete(self, number: int) -> None:
        self._kept.discard(number)
        with contextlib.suppress(OSError, StoreError):
            for folder in self._checkpoints(number):
                folder.remove()
        if self._artifacts is not None:
            forget = self._artifacts.forget_checkpoints
            self._begun.append(self._thread.submit(forget, number))
