"""Where a sweep keeps its artifacts, and removing those of trials beside the sweep."""

from __future__ import annotations

import secrets
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from automl.core import SweepSpec
from automl.core.names import NAME
from automl.core.resuming import shell_line
from automl.errors import UsageError
from workers.artifacts.copies import SweepArtifacts, described, retried
from workers.artifacts.location import NONE

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
        return [f"{self._artifacts.location}: {described(error)}" for error in errors]

    def close(self) -> None:
        """Wait for what was begun."""
        self._thread.shutdown()

    def _remove(self, number: int) -> None:
        retried(lambda: self._artifacts.forget_checkpoints(number), REMOVE_SECONDS)
