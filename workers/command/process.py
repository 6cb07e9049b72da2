"""The processes of a command, as the worker sees them; `keeper.py` is above them."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from workers.runtime.gang import signal_name

KEEPER: Final = Path(__file__).with_name("keeper.py")
CHUNK_BYTES: Final = 1 << 20
EXIT_SECONDS: Final = 5.0  # for the system to end killed processes


class End(NamedTuple):
    """How a command has ended.

    Args:
        status: its exit status; below 0 the signal that ended it; None if its keeper was killed.
        largest_bytes: peak memory of the largest of its processes.
        left: processes that it has left behind, which were killed.
        error: why it could not be started; "" if it could.
    """

    status: int | None = None
    largest_bytes: int = 0
    left: int = 0
    error: str = ""

    def __str__(self) -> str:
        if self.status is None:
            return "lost the process that keeps it, which was killed from outside"
        if self.status < 0:
            return f"was killed by signal {-self.status} ({signal_name(-self.status)})"
        return f"ended with exit status {self.status}"


class CommandProcess:
    """A running command and all processes that it starts. Use it in `with`: none outlives it.

    They end with this process too, even if it is killed.

    Args:
        arguments: the program and its arguments.
        folder: its working directory.
        environment: its environment.

    Attributes:
        stdout, stderr: its output.
        channel: a socket that can be read once the command has ended.
        keeper: identity of the process above all of its processes.

    Raises:
        OSError, ValueError: no process can be started, or an argument holds a null byte.
    """

    def __init__(
        self, arguments: Sequence[str], folder: str, environment: Mapping[str, str]
    ) -> None:
        self.channel, theirs = socket.socketpair()
        command = [sys.executable, "-I", "-S", str(KEEPER), str(theirs.fileno()), folder]
        with theirs:
            try:
                self._start = subprocess.Popen(
                    [*command, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=environment,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                    bufsize=0,
                )
            except BaseException:
                self.channel.close()
                raise
        assert self._start.stdout is not None
        assert self._start.stderr is not None
        self.stdout: IO[bytes] = self._start.stdout
        self.stderr: IO[bytes] = self._start.stderr
        for stream in (self.stdout, self.stderr):
            with suppress(OSError, AttributeError):  # only Linux has larger pipes
                fcntl.fcntl(stream.fileno(), fcntl.F_SETPIPE_SZ, CHUNK_BYTES)
        self._messages = self.channel.makefile("rb")
        first = self._message()
        self.keeper: int | None = first.get("keeper")
        self._leader: int | None = first.get("leader")
        self._start.wait()  # it has left the keeper behind

    def __enter__(self) -> CommandProcess:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill what still runs, and wait until it is gone."""
        with suppress(OSError):
            self.channel.shutdown(socket.SHUT_WR)
            self.channel.settimeout(EXIT_SECONDS)
            self._message()
        for stream in (self._messages, self.channel, self.stdout, self.stderr):
            stream.close()

    def terminate(self) -> None:
        """Send SIGTERM to the process group of the command."""
        self._say(b"T")

    def kill(self) -> None:
        """Kill every process of the command."""
        self._say(b"K")

    def end(self) -> End:
        """How the command has ended; waits for it."""
        found = self._message()
        if not found and self._leader is not None:  # the keeper was killed
            with suppress(OSError):
                os.killpg(self._leader, signal.SIGKILL)
        return End(**found)

    def _say(self, verb: bytes) -> None:
        with suppress(OSError):
            self.channel.send(verb)

    def _message(self) -> dict[str, Any]:
        """The next message of the keeper; empty if it is gone."""
        try:
            line = self._messages.readline()
        except OSError:
            return {}
        return dict(json.loads(line)) if line.endswith(b"\n") else {}


def read_some(stream: IO[bytes]) -> bytes:
    """The bytes that a pipe has now, b"" at its end."""
    return os.read(stream.fileno(), CHUNK_BYTES)
