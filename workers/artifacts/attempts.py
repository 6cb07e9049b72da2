"""Brings the files of a trial to the machine of an attempt, and keeps them while it runs."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workers.protocol import LOGS, log_name

if TYPE_CHECKING:
    from workers.context import Context

    from .mirror import ArtifactMirror


class ArtifactsUnreachable(Exception):
    """The location of the artifacts does not answer, so the attempt cannot go on from them."""


@dataclass
class ArtifactNotes:
    """What an attempt's outcome says about the trial's files.

    Args:
        message: for a person; "" for nothing.
        details: of the outcome.
        seconds: how long the attempt has waited for its files.
        artifact_bytes: of them, at the location.
    """

    message: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    artifact_bytes: int = 0

    def add_to(self, message: str) -> str:
        """The message of an outcome with this one."""
        return "; ".join(filter(None, (message, self.message)))


@contextmanager
def mirrored(context: Context, notes: ArtifactNotes) -> Iterator[None]:
    """While inside, the trial's files are here, and new ones are uploaded by rank 0.

    Does nothing but to tell what is missing if the assignment names no location.

    Args:
        notes: receives what the outcome says.

    Raises:
        ArtifactsUnreachable: the location does not answer, so the attempt cannot go on from it.
    """
    assignment = context.assignment
    if not assignment.artifacts:
        notes.message = moved(context)
        yield
        return
    from .mirror import ArtifactMirror

    try:
        mirror = ArtifactMirror(
            assignment.artifacts, assignment.files, assignment.attempt, resume=assignment.resume
        )
        mirror.restore()
    except (ConnectionError, ImportError) as error:
        raise ArtifactsUnreachable(str(error)) from error
    if context.rank == 0:
        mirror.start()
        context.checkpointed = mirror.checkpointed
    try:
        yield
    except KeyboardInterrupt:  # the second Ctrl-C: what is not there yet stays here
        raise
    except BaseException:
        _finish(mirror, context, notes)
        raise
    _finish(mirror, context, notes)


def _finish(mirror: ArtifactMirror, context: Context, notes: ArtifactNotes) -> None:
    mirror.finish(context.stop_requested, remove=context.world_size == 1)
    notes.message, notes.seconds = mirror.message, mirror.seconds
    notes.details.update(mirror.details)
    notes.artifact_bytes = mirror.artifact_bytes


def moved(context: Context) -> str:
    """Why an attempt has no files of the one before, if that ran on another disk; else ""."""
    assignment = context.assignment
    logs = assignment.files / LOGS
    if context.rank or assignment.attempt == 1 or not assignment.resume:
        return ""
    here = logs.is_file(log_name(assignment.attempt, 0))
    before = any(logs.is_file(log_name(n, 0)) for n in range(1, assignment.attempt))
    if before or not here:  # without logs of its own nothing can be said
        return ""
    return (
        f"began anew: the files of its earlier attempts are not on {socket.gethostname()}. "
        "If `artifacts` names a place that all nodes use, a trial goes on from its checkpoint"
    )
