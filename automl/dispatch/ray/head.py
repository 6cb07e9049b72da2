"""The head of a Ray cluster, without which nothing may be asked of Ray."""

from __future__ import annotations

import socket
import time
from typing import Final

from automl.errors import AutomlError

ASK_SECONDS: Final = 1.0  # between two questions to the head, and how long an answer may take
HEAD_SECONDS: Final = (
    20.0  # without an answer; Ray itself ends this process after 60, with no word to anybody
)


class Head:
    """The head of a cluster, asked now and then whether it is still there.

    Nothing may be asked of Ray itself once it is not: such calls wait, and then end the process.

    Args:
        address: host and port of its global control store; "" for one that is never asked.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port or 0)
        self._asked = self._answered = time.monotonic()

    def answers(self) -> bool:
        """Whether it is there at this moment."""
        self._asked = time.monotonic()
        try:
            if self._address:
                socket.create_connection((self._host, self._port), timeout=ASK_SECONDS).close()
        except OSError:
            return False
        self._answered = self._asked
        return True

    def ask(self) -> None:
        """To be called often: see now and then whether it is there.

        Raises:
            AutomlError: it has not answered for `HEAD_SECONDS`.
        """
        if time.monotonic() - self._asked >= ASK_SECONDS:
            self.answers()
        if self._asked - self._answered > HEAD_SECONDS:
            raise AutomlError(
                f"the head of the Ray cluster, {self._address}, has not answered for {HEAD_SECONDS:g} s; nothing is "
                "lost: resume the sweep when the cluster is back"
            )
