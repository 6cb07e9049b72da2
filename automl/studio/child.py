"""A process of the studio that answers questions: one line of JSON each, answers in any order.

It starts with the first question and ends after a while without one. Its standard output holds
answers only; it ends when its standard input does, so it never outlives the studio.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Lock
from typing import Any, Final

from automl.core.plain_data import compact_json
from automl.errors import AutomlError, StoreError, UsageError

IDLE_SECONDS: Final = 300.0
MAX_ANSWER: Final = 1 << 26  # bytes of an answer
_KINDS: Final = {"usage": UsageError, "store": StoreError, "refused": AutomlError}
Answer = dict[str, Any]


class SilentError(AutomlError):
    """The process has not answered."""


class ChildProcess:
    """The side that asks. Used from one event loop.

    Args:
        module: the program, run with `python -m`; it calls `serve`.
        location: of the store, its argument.
        seconds: that an answer may take.
        silent: what is said if it gives no answer.
        idle: seconds after the last question until the process ends.
        is_killed: whether the process is killed if it gives no answer, because it hangs.
    """

    def __init__(
        self,
        module: str,
        location: str,
        seconds: float,
        silent: str,
        idle: float = IDLE_SECONDS,
        *,
        is_killed: bool = False,
    ) -> None:
        self._command = (sys.executable, "-m", module, location)
        self._seconds = seconds
        self._silent = silent
        self._is_killed = is_killed
        self._idle = idle
        self._numbers = count()
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None  # kept, or it would be collected
        self._starting = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None

    async def ask(self, question: Mapping[str, Any]) -> Answer:
        """The answer to a question.

        Raises:
            UsageError: the question is wrong.
            StoreError: the store cannot be read or written.
            SilentError: there was no answer in time, or the process has ended.
            AutomlError: the request is refused.
        """
        number = next(self._numbers)
        process = await self.start()
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            assert process.stdin is not None
            with contextlib.suppress(ConnectionError):  # it has ended: so will the reader
                process.stdin.write(json.dumps({"id": number, **question}).encode() + b"\n")
                await process.stdin.drain()
            found = await asyncio.wait_for(answer, self._seconds)
        except TimeoutError as error:
            if self._is_killed:
                self.close()
            raise SilentError(self._silent) from error
        finally:
            self._waiting.pop(number, None)
            self._wait_for_idle()
        if "error" in found:
            raise _KINDS[found["kind"]](found["error"])
        return found

    async def start(self) -> asyncio.subprocess.Process:
        """Start the process if none runs."""
        async with self._starting:
            if self._process is None or self._process.returncode is not None:
                self._waiting = {}
                self._process = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.DEVNULL,
                    limit=MAX_ANSWER,
                    start_new_session=True,  # Ctrl-C is the studio's
                )
                self._reader = asyncio.create_task(self._read(self._process))
                self._wait_for_idle()
            return self._process

    def close(self) -> asyncio.subprocess.Process | None:
        """Kill the process; return it, so that somebody may wait for its end."""
        process, self._process = self._process, None
        if process:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        return process

    async def end(self) -> None:
        """Kill the process and wait for its end."""
        if self._timer:
            self._timer.cancel()
        if process := self.close():
            await process.wait()
        if self._reader:
            await self._reader

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        mine = self._waiting
        with contextlib.suppress(ValueError, ConnectionError):  # an answer that is none
            while line := await process.stdout.readline():
                found = json.loads(line)
                waiting = mine.get(found.pop("id"))
                if waiting and not waiting.done():
                    waiting.set_result(found)
        if self._process is process:
            self.close()
        for waiting in mine.values():
            if not waiting.done():
                waiting.set_exception(TimeoutError())

    def _wait_for_idle(self) -> None:
        if self._timer:
            self._timer.cancel()
        if not self._waiting:
            self._timer = asyncio.get_running_loop().call_later(self._idle, self.close)


def serve(answer: Callable[[Mapping[str, Any]], Mapping[str, Any]], threads: int) -> None:
    """The side that answers, until standard input ends.

    Args:
        answer: of a question; an `AutomlError` becomes its message.
        threads: questions that are answered at once.
    """
    out, lock = os.fdopen(os.dup(1), "wb"), Lock()
    os.dup2(2, 1)  # what a library prints is no answer

    def handle(question: Mapping[str, Any]) -> None:
        try:
            found = dict(answer(question))
        except AutomlError as error:
            found = {"error": str(error), "kind": _kind(error)}
        except Exception as error:  # one question must not end the answers to others
            said = f"it failed unexpectedly: {type(error).__name__}: {error}"
            found = {"error": said, "kind": "refused"}
        with lock:
            out.write(compact_json({**found, "id": question["id"]}).encode() + b"\n")
            out.flush()

    if threads == 1:
        for line in sys.stdin.buffer:
            handle(json.loads(line))
        return
    workers = ThreadPoolExecutor(threads)
    for line in sys.stdin.buffer:
        workers.submit(handle, json.loads(line))
    os._exit(0)  # nobody reads what the threads would still answer


def _kind(error: AutomlError) -> str:
    return next(name for name, kind in _KINDS.items() if isinstance(error, kind))
