"""Imports inside a trial: the time and memory that they take are not the trial's."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .peak_memory import PeakMemory
    from .process_state import ProcessState

# The import system calls this function for each module that is not loaded yet. It is private, and
# the same since Python 3.3. If there is none, imports count as the trial's.
_BOOTSTRAP: Any = getattr(importlib, "_bootstrap", None)
_FUNCTION = "_find_and_load"


class Warmup:
    """Measures the imports of the block, and takes them out of the memory of the trial.

    Imports of other threads count for memory only, since the trial does not wait for them.

    Attributes:
        seconds: that the imports took in the thread of the block.
        bytes: of memory that the imported modules keep.
        memory: of the trial, while it is measured.
        process_state: before the trial; what a module sets while it is imported is added to it.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.bytes = 0
        self.memory: PeakMemory | None = None
        self.process_state: ProcessState | None = None
        self._thread = threading.get_ident()
        self._importing = False
        self._apart = False
        self._load: Callable[..., ModuleType] | None = None

    def __enter__(self) -> Warmup:
        self._load = getattr(_BOOTSTRAP, _FUNCTION, None)
        if self._load is not None:
            setattr(_BOOTSTRAP, _FUNCTION, self._measured)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._load is not None:
            setattr(_BOOTSTRAP, _FUNCTION, self._load)
        if error is not None:
            _hide(error.__traceback__)

    def leave_out(self) -> None:
        """The trial is another process: what this one imports cannot make its first uses slower."""
        self._apart = True

    def details(self) -> dict[str, float]:
        """The measurements, for the details of an outcome; none if the trial imported nothing."""
        if self._apart:
            return {}
        found = {"warmup_seconds": self.seconds, "warmup_bytes": self.bytes}
        return {name: value for name, value in found.items() if value}

    def _measured(self, *arguments: Any) -> ModuleType:
        """Load a module; only the outermost of nested imports is measured."""
        assert self._load is not None, "it is replaced only if there is one"
        if self._importing:
            return self._load(*arguments)
        self._importing = True
        began = time.monotonic()
        memory = self.memory
        before = memory.pause() if memory else 0
        ours = threading.get_ident() == self._thread
        state = self.process_state if ours else None
        try:
            with state.importing() if state else nullcontext():
                return self._load(*arguments)
        finally:
            if memory:
                self.bytes += memory.go_on(before)
            if ours:
                self.seconds += time.monotonic() - began
            self._importing = False


def _hide(trace: TracebackType | None) -> None:
    """Take the frames of this file out of a traceback: users read it to find their mistake."""
    while trace is not None:
        while (following := trace.tb_next) is not None and (
            following.tb_frame.f_code.co_filename == __file__
        ):
            trace.tb_next = following.tb_next
        trace = trace.tb_next
