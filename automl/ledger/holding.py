"""Who holds a sweep: what others are told, and how long they wait."""

import json
import socket
import time
from collections.abc import Mapping
from typing import Any, Final

from .lease import holder_alive
from .reader import Reader
from .store_errors import HeldError

WATCH_SECONDS: Final = 5.0


def refusal(sweep: str, holder: Mapping[str, Any] | None) -> HeldError:
    """The error for who comes second; `holder` is the row of who came first, if it is known."""
    who = f"process {holder['pid']} on {holder['host']}" if holder else "another process"
    return HeldError(
        f"sweep {sweep!r} is held by {who}: wait for it, or stop it with `automl stop {sweep}`"
    )


def is_brief(holder: Mapping[str, Any] | None, locked: bool) -> bool:
    """Whether who holds a sweep does so for a moment only, or has just come.

    Args:
        holder: the sweep's row of `holders`, with `now`; None if nobody has ever held it.
        locked: somebody has the lock of its folder, and writes this row a moment later.
    """
    if holder is None:
        return False
    if locked and not (holder["held"] and holder_alive(holder)):
        return True
    return bool(json.loads(holder["status"]).get("brief"))


def wait_until_free(reader: Reader, sweep: str) -> tuple[int, int]:
    """Check that no controller holds a sweep of a server.

    A controller with an old heartbeat is watched for a new one: some clock may have been set.

    Returns:
        The fencing number and the count of commits. If they have changed when the sweep is
        taken, another controller was faster.

    Raises:
        HeldError: a controller holds the sweep.
    """
    holder = reader.holder(sweep)
    if holder is None:
        return 0, 0
    seen = holder["fence"], holder["commits"]
    deadline = time.monotonic() + WATCH_SECONDS
    while holder and holder["held"]:
        if holder_alive(holder) or (holder["fence"], holder["commits"]) != seen:
            raise refusal(sweep, holder)
        if holder["host"] == socket.gethostname() or time.monotonic() > deadline:
            break
        time.sleep(WATCH_SECONDS / 20)
        holder = reader.holder(sweep)
    return seen
