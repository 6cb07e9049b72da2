"""How a sweep that runs in this process is shown: the live view, JSON log lines, metrics."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from automl.core.advice import advice

from .common import say

if TYPE_CHECKING:
    from automl.core import Snapshot


class Adviser:
    """Says on standard error, once, what a person should know about a program."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._ended = 0
        self._own = {
            os.path.realpath(f"/proc/self/fd/{stream}")
            for stream in (1, 2)
            if not os.isatty(stream)
        }

    def __call__(self, snapshot: Snapshot) -> None:
        """Look at a snapshot, if more attempts have ended."""
        ended = sum(bool(trial.details) for trial in snapshot.trials)
        if ended == self._ended:
            return
        self._ended = ended
        for text in advice(snapshot.trials, self._own):
            if text not in self._said:
                self._said.add(text)
                say(text, err=True)


@contextmanager
def shown(
    sweep: str, *, as_json: bool, log_json: bool, metrics: str | None
) -> Iterator[Callable[[Snapshot], None]]:
    """A function that shows each snapshot in every way that was asked for.

    Raises:
        UsageError: metrics cannot be served at that address.
    """
    with ExitStack() as stack:
        shows: list[Callable[[Snapshot], None]] = []
        if metrics is not None:
            from automl.telemetry.prometheus import metrics_server

            shows.append(stack.enter_context(metrics_server(sweep, metrics)))
        if log_json:
            from automl.telemetry.json_log import json_log

            shows.append(stack.enter_context(json_log()))
        elif not as_json:
            from automl.report.terminal_view import view

            shows.append(stack.enter_context(view()))

        shows.append(Adviser())

        def show(snapshot: Snapshot) -> None:
            for each in shows:
                each(snapshot)

        yield show
