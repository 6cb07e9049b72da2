"""Why a command has failed."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Final

from search_spaces.errors import TrialFailure
from workers.run import MEMORY_WORDS

from .metrics import Collector
from .process import End
from .tensorboard import TENSORBOARD

_FROM_OUTSIDE: Final = (signal.SIGKILL, signal.SIGTERM)
_SHELL: Final = 128  # and the number of a signal: a shell's exit status for it
_MEMORY_ERRORS: Final = (*MEMORY_WORDS, "memoryerror")
MAX_LINE: Final = 300


class CommandFailed(TrialFailure):
    """A command has failed.

    Args:
        kind, message: see `TrialFailure`.
        shown_traceback: the end of its standard error.
    """

    def __init__(self, kind: str, message: str = "", shown_traceback: str = "") -> None:
        super().__init__(kind, message)
        self.shown_traceback = shown_traceback


def failure_of(end: End, errors: str, last_line: str, *, oom_killed: bool) -> CommandFailed:
    """The failure of a command that has ended with an error.

    Args:
        end: how it has ended.
        errors: the end of its standard error.
        last_line: that it has printed.
        oom_killed: whether the kernel has killed processes for memory meanwhile.
    """
    if end.error:
        return CommandFailed("crashed", f"the command cannot be started: {end.error}")
    status = end.status if end.status is not None else -signal.SIGKILL
    number = -status if status < 0 else status - _SHELL
    words = f"the command {end}"
    if number == signal.SIGKILL and oom_killed:
        message = f"the machine ran out of memory and its kernel killed the command: {words}"
        return CommandFailed("out_of_memory", message, errors)
    if number in _FROM_OUTSIDE:
        return CommandFailed("preempted", f"{words} from outside", errors)
    if last_line:
        words = f"{words}: {last_line[:MAX_LINE]}"
    about_memory = any(word in errors.lower() for word in _MEMORY_ERRORS)
    return CommandFailed("out_of_memory" if about_memory else "crashed", words, errors)


def nothing_reported(goal: str, collector: Collector, patterns: Mapping[str, str]) -> CommandFailed:
    """The failure of a command that has ended well, but has not reported the goal's metric."""
    found = ", ".join(sorted(collector.metrics)) or "none"
    words = f"the command reported no metric {goal!r}; these were reported: {found}"
    if goal in patterns:
        words += f"; no line of its standard output matches {patterns[goal]!r}"
    elif TENSORBOARD not in patterns:
        words += f"; write it to AUTOML_REPORTS, or give a pattern: --report {goal}='REGEX'"
    if collector.complaint:
        words += f"; {collector.complaint}"
    return CommandFailed("missing_metric", words)
