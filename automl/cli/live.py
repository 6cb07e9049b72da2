"""How a sweep that runs in this process is shown: the live view, JSON log lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from automl.core import Snapshot


@contextmanager
def shown(*, as_json: bool, log_json: bool) -> Iterator[Callable[[Snapshot], None]]:
    """A function that shows each snapshot in every way that was asked for."""
    with ExitStack() as stack:
        shows: list[Callable[[Snapshot], None]] = []
        if log_json:
            from automl.telemetry.json_log import json_log

            shows.append(stack.enter_context(json_log()))
        elif not as_json:
            from automl.report.terminal_view import view

            shows.append(stack.enter_context(view()))

        def show(snapshot: Snapshot) -> None:
            for each in shows:
                each(snapshot)

        yield show
