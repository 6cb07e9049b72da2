"""How a sweep that runs in this process is shown: the live view, JSON log lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from automl.report.progress import Adviser

if TYPE_CHECKING:
    from automl.core import Snapshot


@cache
def own_files() -> frozenset[str]:
    """The files that this process prints to, or that a reader of its pipe, such as tee, has open.

    Linux only; elsewhere there are none.
    """
    found: set[str] = set()
    with suppress(OSError):
        found |= {str(Path(f"/proc/self/fd/{stream}").readlink()) for stream in (1, 2)}
    pipes = {name for name in found if name.startswith("pipe:")}
    for process in Path("/proc").glob("[0-9]*") if pipes else ():
        with suppress(OSError):  # it has ended, or is another user's
            opened = {one.name: str(one.readlink()) for one in (process / "fd").iterdir()}
            for number in [number for number, name in opened.items() if name in pipes]:
                facts = (process / "fdinfo" / number).read_text()
                if re.search(r"^flags:\s*[0-7]*0$", facts, re.MULTILINE):  # it only reads
                    found |= set(opened.values())
    return frozenset(found)


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

        shows.append(Adviser(own_files))

        def show(snapshot: Snapshot) -> None:
            for each in shows:
                each(snapshot)

        yield show
