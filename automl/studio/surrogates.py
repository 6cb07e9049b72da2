"""Asks the surrogates of a sweep, in a process that runs only while somebody asks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from automl.errors import AutomlError

from .child import ChildProcess

ANSWER_SECONDS: Final = 300.0
SILENT: Final = "the surrogates did not answer: ask again, or look at `automl report`"


class SurrogateQueries:
    """Questions to the surrogates of one store, one at a time.

    Args:
        location: of the store, as `Ledger.open` takes it.
    """

    def __init__(self, location: str) -> None:
        self._child = ChildProcess("automl.studio.surrogate_process", location, SILENT)

    async def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of `automl.studio.surrogate_process`.

        Raises:
            UsageError: the question is wrong.
            AutomlError: the process did not answer.
        """
        try:
            return await self._child.ask(question, ANSWER_SECONDS)
        except TimeoutError as error:
            self._child.close()  # it hangs, or it has ended
            raise AutomlError(str(error)) from error

    def close(self) -> asyncio.subprocess.Process | None:
        """Kill the process; return it, so that somebody may wait for its end."""
        return self._child.close()

    async def end(self) -> None:
        """Kill the process and wait for its end."""
        await self._child.end()
