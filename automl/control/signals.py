"""Ctrl-C and SIGTERM while a sweep runs: the first asks it to end, the second to end at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Attention:
    """Counts SIGINT and SIGTERM while it is entered; does nothing outside the main thread.

    Args:
        breaks_in: raise KeyboardInterrupt at the second signal, because trials run in this very thread.
    """

    def __init__(self, *, breaks_in: bool = False) -> None:
        self._breaks_in = breaks_in
        self._previous: dict[signal.Signals, Any] = {}
        self.count = 0

    def __enter__(self) -> Attention:
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def listen(self) -> None:
        """Put the handlers in place, again where somebody has replaced them."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                previous = signal.signal(number, self._on_signal)
                self._previous.setdefault(number, previous)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count == 2 and self._breaks_in:
            raise KeyboardInterrupt
