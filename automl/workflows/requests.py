"""Sends a request to a sweep and waits for the answer, whether or not a controller runs."""

import getpass
import socket
import time
from collections.abc import Mapping
from typing import Any, Final

from automl.control.wiring import attend
from automl.core import Command
from automl.errors import AutomlError, UsageError
from automl.ledger import Ledger

WAIT_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = (0.02, 0.2)  # between two looks: the first, and the longest


def whoami() -> str:
    """Who sends a request from this process: its user and host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        user = "somebody"
    return f"{user}@{socket.gethostname()}"


def request(
    ledger: Ledger, sweep: str, command: Command, wait: float = WAIT_SECONDS
) -> Mapping[str, Any]:
    """The answer to a request.

    A running controller answers within a second. Without one, this process holds the sweep for a
    moment and answers every request that waits. So of many that come at once, one serves all.

    Args:
        wait: seconds to wait for the answer.

    Raises:
        UsageError: there is no such sweep or trial, or an argument is wrong.
        AutomlError: the request is refused, or there is no answer in time.
    """
    (identity,) = ledger.send(sweep, command)
    deadline = time.monotonic() + wait
    pause, longest = _PAUSE_SECONDS
    while True:
        answered, is_held = ledger.answer(sweep, identity)
        if answered is not None:
            return _checked(answered.content)
        if time.monotonic() > deadline:
            raise AutomlError(
                f"sweep {sweep!r} has not answered within {wait:g} s: "
                "its controller hangs, or many wait for it; try again"
            )
        if is_held or not attend(ledger, sweep):
            time.sleep(pause)
            pause = min(1.5 * pause, longest)


def _checked(content: Mapping[str, Any]) -> Mapping[str, Any]:
    if "error" in content:
        raise (UsageError if content["usage"] else AutomlError)(content["error"])
    return content
