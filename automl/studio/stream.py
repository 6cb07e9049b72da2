"""The stream of server-sent events that a page follows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Final

from starlette.concurrency import run_in_threadpool

from automl.errors import AutomlError

from .watcher import Watcher

BEAT_SECONDS: Final = 15.0  # between signs of life in a stream without events


async def events(
    watcher: Watcher, sweep: str = "", since: int = 0, epoch: int = 0
) -> AsyncIterator[bytes]:
    """Events: which sweeps have changed, and what has changed in one of them.

    A page that follows a sweep gets its new state with the event and need not ask for it. The
    state is encoded once for all who follow it.

    Args:
        sweep: the one that the page shows; "" for none.
        since, epoch: version and epoch of the table of trials that the page has.
    """
    listener = watcher.listen()
    try:
        message: dict[str, Any] = {"hello": True, "changed": []}
        view = watcher.view_if_read(sweep)
        # It has changed since the page asked, or is no longer in memory: `_news` reads it again.
        if sweep and (view is None or (view.version, view.epoch) != (since, epoch)):
            message["changed"] = [sweep]
        news, since, epoch = await _news(watcher, sweep, message, since, epoch)
        yield _event(message, news)
        while True:
            try:
                message = await asyncio.wait_for(listener.get(), BEAT_SECONDS)
            except TimeoutError:
                yield b": still here\n\n"
                continue
            news, since, epoch = await _news(watcher, sweep, message, since, epoch)
            yield _event(message, news)
    finally:
        listener.close()


async def _news(
    watcher: Watcher, sweep: str, message: dict[str, Any], since: int, epoch: int
) -> tuple[bytes, int, int]:
    """What a page needs to be up to date; then the version and the epoch that it has."""
    if not sweep or sweep not in message["changed"]:
        return b"", since, epoch
    try:
        view = watcher.view_if_read(sweep)
        if view is None:
            view = await run_in_threadpool(watcher.view, sweep)
    except AutomlError:  # it was deleted, or is damaged: the page asks, and is told
        return b"", since, epoch
    page, table, version, now = view.update(since, epoch)
    return b',"page":' + page + b',"table":' + table, version, now


def _event(message: dict[str, Any], news: bytes) -> bytes:
    encoded = json.dumps(message, separators=(",", ":")).encode()
    return b"data: " + encoded[:-1] + news + b"}\n\n"
