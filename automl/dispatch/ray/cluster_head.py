"""Watches the head of a Ray cluster: without it no call to Ray may be made."""

import socket
import time

from automl.errors import AutomlError

from . import timeouts


class ClusterHead:
    """Checks now and then that the head of a cluster answers.

    If it does not, calls to Ray block, and later Ray ends the process.

    Args:
        address: host and port of the global control store; "" for a head that is never checked.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        host, _, port = address.rpartition(":")
        self._host = host.strip("[]")
        self._port = int(port or 0)
        self._checked = self._answered = time.monotonic()

    def answers(self) -> bool:
        """Whether the head answers now."""
        self._checked = time.monotonic()
        try:
            if self._address:
                socket.create_connection(
                    (self._host, self._port), timeout=timeouts.HEAD_POLL_SECONDS
                ).close()
        except OSError:
            return False
        self._answered = self._checked
        return True

    def check(self) -> None:
        """Check the head if the last check is old; call it often.

        Raises:
            AutomlError: the head has not answered for `HEAD_LOST_SECONDS`.
        """
        if time.monotonic() - self._checked >= timeouts.HEAD_POLL_SECONDS:
            self.answers()
        if self._checked - self._answered > timeouts.HEAD_LOST_SECONDS:
            raise AutomlError(
                f"the head of the Ray cluster, {self._address}, has not answered for "
                f"{timeouts.HEAD_LOST_SECONDS:g} s; nothing is lost: resume the sweep when the "
                "cluster is back"
            )
