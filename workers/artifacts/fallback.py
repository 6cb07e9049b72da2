"""An attempt that cannot go on from its checkpoint tries the one before, then begins anew.

<trial>/checkpoints            what the objective writes
<trial>/.checkpoints-before    a copy, made when the trial has last paused in good order
<trial>/.checkpoints-failed    those that an attempt could not go on from, until another works
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from search_spaces.errors import StoreError
from workers.failures import failure_of, one_line
from workers.files.folder import Folder
from workers.functions.saved_state import SAVED
from workers.protocol import CHECKPOINTS, CHECKPOINTS_BEFORE, CHECKPOINTS_FAILED, StopRequest

if TYPE_CHECKING:
    from workers.context import Context

MAX_BYTES: Final = 1 << 30  # of checkpoints that are copied at a pause


def call_with_fallback(context: Context, objective: Callable[[Context], Any]) -> Any:
    """Call an objective; if it cannot go on from its checkpoint, try those that remain.

    It could not go on if it has crashed before its first report. Nothing is tried again for a
    trial of several ranks, whose other ranks may be anywhere.

    Raises:
        Exception: of the objective; of its first call if the last one reports nothing either.
    """
    older = _older(context) if context.resumed and context.world_size == 1 else iter(())
    first: Exception | None = None
    while True:
        try:
            result = objective(context)
        except Exception as error:
            first = first or error
            if context.reported or failure_of(error)[0] != "crashed":
                raise
            if context.stop_requested() is not None or (place := next(older, "")) == "":
                _put_back(context.files)
                if error is first:
                    raise
                raise first from first.__cause__
            context.message = f"{place}, because its checkpoint fails: {one_line(first)}"
            print(f"automl: {context.message}", file=sys.stderr)
            context.look_again()
        else:
            break
    with suppress(OSError, StoreError):
        (context.files / CHECKPOINTS_FAILED).remove()
        if context.stop in (StopRequest.PAUSE, StopRequest.INTERRUPT) and not context.terminated:
            _keep_copy(context.files)
    return result


def _older(context: Context) -> Iterator[str]:
    """Put older checkpoints in place, one a step; says in words what the attempt does then."""
    trial = context.files
    with suppress(OSError, StoreError):
        (trial / CHECKPOINTS_FAILED).remove()
        trial.rename(CHECKPOINTS, CHECKPOINTS_FAILED)
        if (trial / CHECKPOINTS_BEFORE / CHECKPOINTS).names():
            (trial / CHECKPOINTS_BEFORE).copy(CHECKPOINTS, trial.path)
            yield "went on from the checkpoint before"
        (trial / CHECKPOINTS).remove()
        yield "began anew"


def _put_back(trial: Folder) -> None:
    """Nothing has helped, so the checkpoints may not be to blame."""
    if (trial / CHECKPOINTS_FAILED).names():
        (trial / CHECKPOINTS).remove()
        trial.rename(CHECKPOINTS_FAILED, CHECKPOINTS)


def _keep_copy(trial: Folder) -> None:
    """Copy the checkpoints, unless they are too large; `trial.save` keeps the state before."""
    checkpoints, before = trial / CHECKPOINTS, trial / CHECKPOINTS_BEFORE
    before.remove()
    if not set(checkpoints.names()) <= {SAVED} and checkpoints.size() <= MAX_BYTES:
        before.make()
        trial.copy(CHECKPOINTS, before.path)
