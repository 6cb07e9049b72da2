"""Ctrl-C and SIGTERM while a sweep runs: the first asks it to stop, the second to end at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any


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
