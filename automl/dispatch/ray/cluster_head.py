"""Watches the head of a Ray cluster, and the raylet here: without them Ray may not be called."""

import socket
import time

from automl.errors import AutomlError

from . import timeouts


class ClusterHead:
    """Checks now and then that the head of a cluster, and the raylet of this machine, answer.

    If they do not, calls to Ray block, and later Ray ends this process without any message.

    Args:
        address: host and port of the global control store; "" for a head that is never checked.
        raylet: path of the socket of the raylet; "" if it is never checked.
        own: whether Ray was started here, so nobody brings its head back.
    """

    def __init__(self, address: str, raylet: str = "", *, own: bool = False) -> None:
        self._address, self._raylet = address, raylet
        self._patience = timeouts.OWN_LOST_SECONDS if own else timeouts.HEAD_LOST_SECONDS
        self._checked = self._answered = self._raylet_answered = time.monotonic()

    def answers(self) -> bool:
        """Whether both answer now."""
        self._checked = time.monotonic()
        host, _, port = self._address.rpartition(":")
        if not self._address or _answers((host.strip("[]"), int(port))):
            self._answered = self._checked
        if not self._raylet or _answers(self._raylet):
            self._raylet_answered = self._checked
        return self._answered == self._raylet_answered == self._checked

    def check(self) -> None:
        """Check them if the last check is old; call it often.

        Raises:
            AutomlError: the head has not answered for `HEAD_LOST_SECONDS`, or one of this machine
                for `OWN_LOST_SECONDS`.
        """
        if time.monotonic() - self._checked >= timeouts.HEAD_POLL_SECONDS:
            self.answers()
        if self._checked - self._answered > self._patience:
            raise AutomlError(
                f"the head of the Ray cluster, {self._address}, has not answered for "
                f"{self._patience:g} s; nothing is lost: resume the sweep when the cluster is back"
            )
        if self._checked - self._raylet_answered > timeouts.OWN_LOST_SECONDS:
            raise AutomlError(
                "Ray's process on this machine, the raylet, has ended; nothing is lost: resume the "
                "sweep"
            )


def _answers(address: str | tuple[str, int]) -> bool:
    seconds = timeouts.HEAD_POLL_SECONDS
    try:
        if not isinstance(address, str):
            socket.create_connection(address, timeout=seconds).close()
            return True
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(seconds)
            connection.connect(address)
    except (ConnectionRefusedError, FileNotFoundError):
        return False
    except OSError:
        return isinstance(address, str)  # a raylet that does not answer in time is busy
    return True
