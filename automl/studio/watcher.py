"""Follows the sweeps of a store in one thread, however many people look at them."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from threading import Condition, Event, Lock, Thread
from typing import Any, Final

from automl.errors import AutomlError
from automl.ledger import Ledger
from automl.ledger.reader import SweepHead
from automl.report.sweep_data import SweepData

Found = tuple[dict[str, Any], list[str]]  # an answer, and the reasons to doubt it
EVERY_SECONDS: Final = 0.3  # between two looks at the store while somebody is connected
MAX_TRIALS: Final = 50_000  # in memory; those of sweeps that nobody looks at are dropped first
LINES_SECONDS: Final = 0.2  # at most, of one look, for the lines of sweeps that nobody has opened


class Watcher:
    """Keeps every sweep that somebody looks at up to date, and says what has changed.

    Args:
        ledger: open for reading; store: its location; interval: seconds between looks.
    """

    def __init__(self, ledger: Ledger, store: str, interval: float = EVERY_SECONDS) -> None:
        self.ledger = ledger
        self._interval = interval
        self._lock = Lock()
        self._heads: dict[str, SweepHead] = {}
        self._views: OrderedDict[str, SweepData] = OrderedDict()
        self._read: dict[str, tuple[float, ...]] = {}  # the version of the sweep that a view has
        self._lines: dict[str, dict[str, Any]] = {}  # of sweeps without a view
        self._error = ""
        self._looked = False
        self._listeners: set[_Listener] = set()
        self._wanted = Condition(self._lock)
        self._closed = Event()
        self._store = store
        self._waiting: dict[str, Future[Found]] = {}  # answers, by sweep
        self._pool: ProcessPoolExecutor | None = None
        self._thread = Thread(target=self._run, name="automl-studio", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread."""
        self._closed.set()
        with self._wanted:
            self._wanted.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout=30)
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    # what the pages ask for

    def heads(self) -> list[SweepHead]:
        """Every sweep, the newest one last."""
        return self.ledger.heads()

    def overview(self) -> dict[str, Any]:
        """Every sweep with its line; the line is missing until the sweep has been read."""
        heads = {entry.info.name: entry for entry in self.heads()}
        with self._lock:
            self._heads = heads
            lines = self._lines | {name: view.row() for name, view in self._views.items()}
            return {
                "error": self._error,
                "sweeps": [
                    {**dataclasses.asdict(entry.info), "host": entry.host, "pid": entry.pid}
                    | {"line": lines.get(name)}
                    for name, entry in heads.items()
                ],
            }

    def view(self, name: str) -> SweepData:
        """A sweep, read if that has not been done yet.

        Raises:
            UsageError: there is no sweep of the name.
            StoreError: the store is damaged or cannot be read.
        """
        with self._lock:
            known = self._views.get(name)
        # The thread keeps it up to date while somebody listens.
        return known if known and self._listeners else self._updated(name)

    def listen(self) -> _Listener:
        """Changes from now on; `close` it when nobody listens any more."""
        listener = _Listener(self)
        with self._wanted:
            self._listeners.add(listener)
            self._wanted.notify_all()
        return listener

    def forget(self, listener: _Listener) -> None:
        """Tell a listener nothing any more."""
        with self._lock:
            self._listeners.discard(listener)

    # the thread

    def _run(self) -> None:
        while not self._closed.is_set():
            with self._wanted:
                while self._is_idle():
                    self._wanted.wait()
            begun = time.monotonic()
            try:
                self._look()
                self._say_error("")
            except AutomlError as error:  # a locked or vanished store must not end the page
                self._say_error(str(error))
            self._looked = True
            self._closed.wait(max(self._interval - (time.monotonic() - begun), 0.05))

    def _is_idle(self) -> bool:
        """Whether nobody listens, and every sweep has been read once: then a page opens at once."""
        is_read = self._looked and (self._error or self._heads.keys() <= self._known())
        return bool(is_read and not self._listeners and not self._closed.is_set())

    def _known(self) -> set[str]:
        """The sweeps that have a line, or an error in its place; the caller holds the lock."""
        return self._lines.keys() | self._views.keys()

    def _look(self) -> None:
        heads = {entry.info.name: entry for entry in self.heads()}
        with self._lock:
            before, self._heads = self._heads, heads
            changed = [n for n, entry in heads.items() if before.get(n) != entry]
            gone = [name for name in before if name not in heads]
            opened = [n for n in self._views if n in heads]
            for name in gone:
                self._views.pop(name, None)
                self._lines.pop(name, None)
        stale = [name for name in opened if self._is_stale(name, heads[name])]
        for name in stale:
            self._updated(name)
        if changed or gone or stale:
            self._tell({*changed, *stale})
        self._answer(heads)
        self._read_lines(heads)

    def _answer(self, heads: Mapping[str, SweepHead]) -> None:
        """Take the answers that are ready, and ask for others while somebody looks."""
        with self._lock:
            views = {name: view for name, view in self._views.items() if name in heads}
        for name in [name for name, found in self._waiting.items() if found.done()]:
            found = self._waiting.pop(name)
            if name in views and found.exception() is None:
                views[name].take_answer(*found.result())
                self._tell({name})
        for name, view in views.items() if self._listeners else ():
            if name not in self._waiting and view.wants_answer():
                if self._pool is None:  # a new process for each answer gives its memory back
                    context = get_context("spawn")
                    self._pool = ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1)
                self._waiting[name] = self._pool.submit(answer_of, self._store, name)

    def _read_lines(self, heads: dict[str, SweepHead]) -> None:
        """Read sweeps that have no line yet, the newest first, for a part of a second."""
        deadline = time.monotonic() + LINES_SECONDS
        with self._lock:
            known = self._known()
        for name in reversed(heads):
            if name in known and not self._is_stale(name, heads[name]):
                continue
            if time.monotonic() > deadline:
                return
            try:
                self.view(name)
            except AutomlError as error:
                with self._lock:
                    self._lines[name] = {"error": str(error)}
                    self._read[name] = heads[name].version
            self._tell({name})

    def _is_stale(self, name: str, entry: SweepHead) -> bool:
        with self._lock:
            view = self._views.get(name)
            state = view.snapshot.state if view and view.snapshot else entry.info.state
            return self._read.get(name) != entry.version or state != entry.info.state

    def _updated(self, name: str) -> SweepData:
        with self._lock:
            view = self._views.get(name) or SweepData(self.ledger.follow(name), name)
            entry = self._heads.get(name)
        if entry is None:
            found = {one.info.name: one for one in self.heads()}
            entry = found.get(name)
            with self._lock:
                self._heads = found
        view.refresh()
        with self._lock:
            self._views[name] = view
            self._views.move_to_end(name)
            self._read[name] = entry.version if entry else ()
            self._drop_some(name)
        return view

    def _drop_some(self, kept: str) -> None:
        total = sum(view.num_trials for view in self._views.values())
        for name in list(self._views):
            if total <= MAX_TRIALS or name == kept:
                return
            view = self._views.pop(name)
            total -= view.num_trials
            self._lines[name] = view.row()

    def _say_error(self, error: str) -> None:
        if error != self._error:
            self._error = error
            self._tell(set())

    def _tell(self, changed: set[str]) -> None:
        with self._lock:
            message = {"changed": sorted(changed), "error": self._error}
            listeners = list(self._listeners)
        for listener in listeners:
            listener.put(message)


class _Listener:
    """The changes that one page has not been told yet; they add up while it is slow."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._message: dict[str, Any] | None = None

    def put(self, message: Mapping[str, Any]) -> None:
        """Add a change, from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._add, message)
        except RuntimeError:  # the server has ended
            self.close()

    async def get(self) -> dict[str, Any]:
        """Wait for a change."""
        await self._ready.wait()
        self._ready.clear()
        message, self._message = self._message, None
        assert message is not None, "it is ready"
        return message

    def close(self) -> None:
        """Listen no more."""
        self._watcher.forget(self)

    def _add(self, message: Mapping[str, Any]) -> None:
        before = self._message["changed"] if self._message else []
        self._message = {**message, "changed": sorted({*before, *message["changed"]})}
        self._ready.set()


def answer_of(store: str, name: str) -> Found:
    """The answer of a sweep and the reasons to doubt it, as plain data."""
    from automl.ledger import Ledger
    from automl.report.answer import answer
    from automl.report.caveats import caveats
    from automl.report.record import Record

    with closing(Ledger.open(store, readonly=True)) as ledger:
        record = Record.read(ledger, name)
    found = answer(record).to_dict()
    if record.confirmation is not None:
        found["confirmation"] = str(record.confirmation)
    return found, list(caveats(record.snapshot, record.space))
