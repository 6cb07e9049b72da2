"""The output of a command: its lines, the end of them, and the trial's log."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from workers.protocol import LOGS, Assignment, log_name

COLOURS: Final = r"\x1b\[[0-9;]*m"  # of a terminal
LINE_BYTES: Final = 10_000  # of a line in which patterns are searched; the rest of it is ignored
TAIL_BYTES: Final = 8_192
SHOWN_LINES: Final = 3  # of an output, in a message
LINE_SHOWN: Final = 300  # characters of each


class Lines:
    """Splits a stream of bytes into lines, each cut to a number of bytes.

    Args:
        most: bytes of a line that are kept.
    """

    def __init__(self, most: int = LINE_BYTES) -> None:
        self._most = most
        self._begun = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that end in the next bytes of the stream; a carriage return ends one too."""
        first, *others = chunk.replace(b"\r", b"\n").split(b"\n")
        self._begun += first[: self._most - len(self._begun)]
        if not others:
            return []
        lines = [self._begun, *(line[: self._most] for line in others[:-1])]
        self._begun = others[-1][: self._most]
        return lines

    def rest(self) -> bytes:
        """What follows the last line."""
        rest, self._begun = self._begun, b""
        return rest


class Tail:
    """The newest bytes of a stream."""

    def __init__(self) -> None:
        self._bytes = b""

    def feed(self, chunk: bytes) -> None:
        """Take in the next bytes of the stream."""
        self._bytes = (self._bytes + chunk[-TAIL_BYTES:])[-TAIL_BYTES:]

    def text(self) -> str:
        """The end of the stream, without a line that is cut at its beginning."""
        found = self._bytes
        if len(found) == TAIL_BYTES:
            found = found.partition(b"\n")[2] or found
        return found.decode("utf-8", "replace")

    def last_lines(self, most: int = SHOWN_LINES) -> list[str]:
        """The last lines that are not empty, each cut to `LINE_SHOWN` characters."""
        lines = [line.strip() for line in self.text().replace("\r", "\n").split("\n")]
        return [line[:LINE_SHOWN] for line in lines if line][-most:]

    def last_line(self) -> str:
        """The last line that is not empty; "" if there is none."""
        return next(iter(self.last_lines(1)), "")


class TrialLog:
    """The log of a rank, written beside its output. Use it in `with`.

    A log that cannot be written is given up: the trial is not to blame.
    """

    def __init__(self, assignment: Assignment, rank: int) -> None:
        logs = assignment.files / LOGS
        logs.make()
        self._file = logs.open(log_name(assignment.attempt, rank), "ab", buffering=0)

    def __enter__(self) -> TrialLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, chunk: bytes) -> None:
        """Append bytes."""
        with suppress(OSError):
            self._file.write(chunk)

    def say(self, words: str) -> None:
        """Append a line of our own."""
        self.write(f"automl: {words}\n".encode(errors="replace"))
