"""The processes of a command, as the worker sees them."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, Final, NamedTuple

from workers.runtime.gang import signal_name

CHUNK_BYTES: Final = 1 << 20
_PARENT_DEATH_SIGNAL: Final = 1  # of prctl
_PRCTL: Final[Any] = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


class End(NamedTuple):
    """How a command has ended.

    Args:
        status: its exit status; below 0 the signal that ended it.
    """

    status: int

    def __str__(self) -> str:
        if self.status < 0:
            return f"was killed by signal {-self.status} ({signal_name(-self.status)})"
        return f"ended with exit status {self.status}"


class CommandProcess:
    """A running command with the processes of its group. Use it in `with`: none outlives it.

    The kernel kills the command if the thread that has started it ends.

    Args:
        arguments: the program and its arguments.
        folder: its working directory.
        environment: its environment.

    Attributes:
        stdout, stderr: its output.

    Raises:
        OSError, ValueError: no process can be started, or an argument holds a null byte.
    """

    def __init__(
        self, arguments: Sequence[str], folder: str, environment: Mapping[str, str]
    ) -> None:
        try:
            self._process = subprocess.Popen(
                arguments,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                process_group=0,  # in the session of the attempt, which ends as a whole
                preexec_fn=_end_with_parent,
                bufsize=0,
            )
        except OSError as error:
            place = "its folder " if error.filename == folder else ""
            raise OSError(f"{place}{error.filename!r}: {error.strerror}") from error
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self.stdout: IO[bytes] = self._process.stdout
        self.stderr: IO[bytes] = self._process.stderr
        self._end: End | None = None

    def __enter__(self) -> CommandProcess:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill what still runs, and wait until the command is gone."""
        self.kill()
        self.end()
        self.stdout.close()
        self.stderr.close()

    def terminate(self) -> None:
        """Send SIGTERM to the process group of the command."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process group of the command."""
        self._signal(signal.SIGKILL)

    @property
    def has_ended(self) -> bool:
        """Whether the command has ended; others of its group may still run."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT  # its identity stays its own
        return self._end is not None or os.waitid(os.P_PID, self._process.pid, options) is not None

    def end(self) -> End:
        """How the command has ended; waits for it, then kills the rest of its group."""
        if self._end is None:
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            self.kill()
            self._end = End(self._process.wait())
        return self._end

    def _signal(self, number: int) -> None:
        if self._end is None:  # else another process may have its identity
            with suppress(OSError):
                os.killpg(self._process.pid, number)


def _end_with_parent() -> None:
    """In the new process: the kernel kills it once the thread that has started it ends."""
    if _PRCTL is not None:
        _PRCTL(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def read_some(stream: IO[bytes]) -> bytes:
    """The bytes that a pipe has now, b"" at its end."""
    return os.read(stream.fileno(), CHUNK_BYTES)
