"""Ctrl-C and SIGTERM while a sweep runs: the first asks it to stop, the second to end at once."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Final

IMPATIENT_SECONDS: Final = 10.0  # after a Ctrl-C, in which further ones add nothing
WAIT_SECONDS: Final = 30.0  # for a suggestion that nobody needs any more


class StopSignals:
    """Counts SIGINT and SIGTERM while it is entered; does nothing outside the main thread.

    Args:
        interrupts: raise KeyboardInterrupt at the second signal, because trials run in the main
            thread. Leaving the context handles the KeyboardInterrupt.

    Attributes:
        count: of the signals so far.
    """

    def __init__(self, *, interrupts: bool = False) -> None:
        self._interrupts = interrupts
        self._previous: dict[signal.Signals, Any] = {}
        self.count = 0
        self._raises = False

    def __enter__(self) -> StopSignals:
        self.install()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
            if self.count and isinstance(handler, SafeEnd):
                handler.taken = time.monotonic()
        self._previous.clear()
        return isinstance(error, KeyboardInterrupt)

    def install(self) -> None:
        """Install the handlers; call it again after Ray has installed its own."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous.setdefault(number, signal.signal(number, self._on_signal))

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Inside, the first signal raises KeyboardInterrupt: no trial runs yet."""
        self._raises = True
        try:
            yield
        finally:
            self._raises = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self._raises or (self.count == 2 and self._interrupts):
            raise KeyboardInterrupt


class SafeEnd:
    """Around a sweep: once a Ctrl-C was taken, further ones do not cut short how the sweep ends.

    So it is closed, and says how it can be resumed. Does nothing outside the main thread.

    Attributes:
        taken: when the last Ctrl-C was taken, by the monotonic clock; minus infinity before.
    """

    def __init__(self) -> None:
        self.taken = -float("inf")
        self._previous: Any = None

    def __enter__(self) -> None:
        previous = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and callable(previous):
            self._previous = previous
            signal.signal(signal.SIGINT, self)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Take a signal as the handler before would, unless one was taken shortly before."""
        now = time.monotonic()
        if now > self.taken + IMPATIENT_SECONDS:
            self.taken = now
            self._previous(number, frame)

    def __exit__(self, *error: object) -> None:
        if self.taken > 0:
            from automl.suggesters.queue import wait_for_threads

            # If a thread imports torch at the end of a script, CPython forgets that nobody has
            # handled a KeyboardInterrupt, and the exit status is 1.
            wait_for_threads(WAIT_SECONDS)
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
