"""What a Python program needs if `automl` runs it as a command.

docs/guides/script.md describes the protocol.

It uses the standard library alone: copy this file if the program runs where automl is not
installed. If `automl` does not run the program, the functions do nothing.

Example:
    >>> from automl.client import checkpoint_dir, report, resumed
    >>> state = checkpoint_dir() / "epoch"
    >>> begin = int(state.read_text()) if resumed() else 0
    >>> for epoch in range(begin, 3):
    ...     _ = state.write_text(str(epoch + 1))
    ...     if not report(epoch, loss=1 / (epoch + 1)):
    ...         break
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def params() -> dict[str, Any]:
    """The active parameters of the trial by name; empty outside of automl."""
    file = os.environ.get("AUTOML_PARAMS")
    return dict(json.loads(Path(file).read_text(encoding="utf-8"))) if file else {}


def report(step: int, **metrics: float) -> bool:
    """Report metrics at a step; returns False if the program should save its state and end.

    Args:
        step: number of the step or epoch; it grows, also over attempts.
        metrics: numbers by name.
    """
    _append({"step": int(step), **metrics})
    return not _stop_requested()


def result(**metrics: float) -> None:
    """Report the result of the trial; without one, the last reported values are the result."""
    _append(metrics)


def checkpoint_dir() -> Path:
    """The folder that outlives attempts and pauses; the working directory outside of automl."""
    return Path(os.environ.get("AUTOML_CHECKPOINT_DIR", ""))


def resumed() -> bool:
    """Whether an earlier attempt has left files in `checkpoint_dir`."""
    return os.environ.get("AUTOML_RESUME") == "1"


def _stop_requested() -> bool:
    stop = os.environ.get("AUTOML_STOP")
    return stop is not None and Path(stop).exists()


def _append(line: Mapping[str, Any]) -> None:
    """Append a line of JSON with one write, so that lines of several processes do not mix."""
    file = os.environ.get("AUTOML_REPORTS")
    if file:
        content = json.dumps(line, default=float) + "\n"
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(descriptor, content.encode())
        finally:
            os.close(descriptor)
