"""Failures: the kind, a message and a traceback, each cut for its way to the controller.

An `Outcome` tells each as data: `failure`, `cause` and `exit_status`. Nothing decides by a message.

failure         cause      what has happened
out_of_memory   raised     Python, torch or a library had no memory
                killed     the kernel or Ray has killed the process for memory
non_finite      raised     a goal or the arithmetic gave no number
missing_metric  raised     the objective has said nothing of a goal
timeout         lost       no step for too long, so the attempt was ended
crashed         raised     the objective has raised; `exception` and `raised_at` tell what and where
                exited     its process has ended by itself, with `exit_status`
                signalled  its process has died of a signal of its own doing, such as SIGSEGV
                killed     its process was killed from outside; it runs again
                lost       its process gave no sign of life; it runs again
preempted       lost       the worker, its machine or its GPU is gone; it runs again
                killed     a program was killed from outside; it runs again
                disk       there is no room on the disk; it runs again

Every text that a worker sends has its limit here.
"""

import errno
import os
import re
import reprlib
from pathlib import Path
from typing import Any, Final

from search_spaces.errors import TrialFailure

MAX_MESSAGE: Final = 4096  # characters of a message
MAX_LINE: Final = 300  # of an error in one line
MAX_TRACEBACK: Final = 20_000
MAX_CAUSES: Final = 10  # errors behind an error that are looked at
MAX_NAME: Final = 200  # of the name of a metric or of an exception
_FRAME: Final = re.compile(r'^\s*File "([^"]+)", line (\d+)', re.MULTILINE)
_ROOT: Final = Path(__file__).parents[1]
_OURS: Final = tuple(f"{_ROOT / name}{os.sep}" for name in ("automl", "workers", "search_spaces"))
_LIBRARIES: Final = ("site-packages", "dist-packages", "/lib/python3", "<frozen ")
MEMORY_WORDS = (
    "out of memory",
    "can't allocate memory",
    "alloc_failed",
    "allocation_failed",
    "unable to find an engine",  # cuDNN, if no algorithm has room for its workspace
    "not enough memory",
    "bad_alloc",
)
NO_ROOM = "there is no room on the disk"
DISK_WORDS = (
    "no space left on device",
    "disk quota exceeded",
    "pytorchstreamwriter failed writing",
    "unexpected pos ",  # torch.save, which hides the cause
)


def failure_of(error: BaseException) -> tuple[str, str]:
    """The kind of failure of an exception, and one line that describes it."""
    whole, line = text_of(error), one_line(error)
    if isinstance(error, TrialFailure):
        return error.kind, bounded(whole)
    about_memory = any(word in whole.lower() for word in MEMORY_WORDS)  # also of CUDA's libraries
    if isinstance(error, MemoryError) or (
        about_memory and isinstance(error, RuntimeError | OSError)
    ):
        return "out_of_memory", line
    return ("non_finite" if isinstance(error, ArithmeticError) else "crashed"), line


def text_of(error: BaseException) -> str:
    """The text of an exception, whose own methods may raise."""
    try:
        return str(error)
    except BaseException as other:  # it must not end the controller
        return f"its text cannot be shown, {type(other).__name__} is raised"


def one_line(error: BaseException) -> str:
    """An exception in one line: its type, and the first line of its text."""
    name = type(error).__name__[:MAX_NAME]
    lines = text_of(error).strip().splitlines()
    return f"{name}: {lines[0][:MAX_LINE]}" if lines else name


def bounded(text: str, most: int = MAX_MESSAGE) -> str:
    """A text of at most `most` characters; if it is cut, its end says how many it had."""
    if len(text) <= most:
        return text
    mark = f"... ({len(text):,} characters in all)"
    return text[: most - len(mark)] + mark


def raised_at(shown: str) -> str:
    """The innermost line of the user's own code in the text of a traceback, such as `train.py:12`.

    Returns:
        The innermost line of all if none is the user's; "" if the text is no traceback of Python.
    """
    frames = _FRAME.findall(shown)
    own = [
        (file, line)
        for file, line in frames
        if not file.startswith(_OURS) and not any(place in file for place in _LIBRARIES)
    ]
    return next((f"{Path(file).name}:{line}" for file, line in (own or frames)[-1:]), "")


def is_disk_full(error: BaseException | None) -> bool:
    """Whether an error, or one that it was raised for, says that there is no room on a disk."""
    for _ in range(MAX_CAUSES):
        if error is None or isinstance(error, TrialFailure):
            break
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        if full or any(word in text_of(error).lower() for word in DISK_WORDS):
            return True
        error = error.__cause__ or error.__context__
    return False


def described(value: Any) -> str:
    """A value of any kind in few characters."""
    try:
        size = f" of {len(value):,}" if hasattr(value, "__len__") else ""
        return f"{type(value).__name__}{size}: {reprlib.repr(value)}"
    except BaseException:  # its own methods may raise anything
        return type(value).__name__
