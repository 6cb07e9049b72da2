"""Follows the sweeps of a store in one thread, however many people look at them."""

from __future__ import annotations

import dataclasses
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import closing, contextmanager
from multiprocessing import get_context
from threading import Condition, Event, Lock, Thread
from typing import Any, Final

from automl.errors import AutomlError
from automl.ledger import Ledger, SweepInfo
from automl.report.sweep_data import SweepData

EVERY_SECONDS: Final = 0.3  # between two looks at the store while somebody is connected
MAX_TRIALS: Final = 50_000  # in memory; those of sweeps that nobody looks at are dropped first
LINES_SECONDS: Final = 0.2  # at most, of one look, for the lines of sweeps that nobody has opened


class Watcher:
    """Keeps every sweep that somebody looks at up to date, and counts its changes.

    Args:
        ledger: open for reading; store: its location; interval: seconds between looks.

    Attributes:
        error: why the sweeps are not up to date; "" if they are.
    """

    def __init__(self, ledger: Ledger, store: str, interval: float = EVERY_SECONDS) -> None:
        self.ledger = ledger
        self.interval = interval
        self.error = ""
        self._lock, self._reading = Lock(), Lock()
        self._heads: dict[str, SweepInfo] | None = None
        self._views: OrderedDict[str, SweepData] = OrderedDict()
        self._read: dict[str, tuple[float, ...]] = {}  # the version of the sweep that a view has
        self._lines: dict[str, dict[str, Any]] = {}  # of sweeps without a view
        self._counts: dict[str, int] = {}  # of changes, by sweep
        self._num_followers = 0
        self._wanted = Condition(self._lock)
        self._closed = Event()
        self._store = store
        self._waiting: dict[str, Future[dict[str, Any]]] = {}  # answers, by sweep
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
            for process in list(self._pool._processes.values()):
                process.terminate()  # an answer may take a minute, which nobody waits for now
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    # what the pages ask for

    def overview(self) -> dict[str, Any]:
        """Every sweep with its line; the line is missing until the sweep has been read."""
        heads = {entry.name: entry for entry in self.ledger.sweeps()}
        with self._lock:
            self._heads = heads
            lines = self._lines | {name: view.row() for name, view in self._views.items()}
            return {
                "error": self.error,
                "sweeps": [
                    dataclasses.asdict(entry) | {"line": lines.get(name)}
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
        # The thread keeps it up to date while somebody follows.
        if known and self._num_followers:
            return known
        with self._reading:  # else two threads would each have a table of it
            return self._updated(name)

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Somebody follows the changes until the block ends."""
        with self._wanted:
            self._num_followers += 1
            self._wanted.notify_all()
        try:
            yield
        finally:
            with self._lock:
                self._num_followers -= 1

    def counts(self) -> dict[str, int]:
        """How often each sweep has changed."""
        with self._lock:
            return dict(self._counts)

    # the thread

    def _run(self) -> None:
        while not self._closed.is_set():
            with self._wanted:
                while self._is_idle():
                    self._wanted.wait()
            begun = time.monotonic()
            try:
                self._look()
                self.error = ""
            except AutomlError as error:  # a locked or vanished store must not end the page
                self.error = str(error)
            self._closed.wait(max(self.interval - (time.monotonic() - begun), 0.05))

    def _is_idle(self) -> bool:
        """Whether nobody follows, and every sweep has been read once: then a page opens at once."""
        known = self._lines.keys() | self._views.keys()
        is_read = self.error or (self._heads is not None and self._heads.keys() <= known)
        return bool(is_read and not self._num_followers and not self._closed.is_set())

    def _look(self) -> None:
        """Read what has changed; sweeps that nobody has opened only for a part of a second."""
        heads = {entry.name: entry for entry in self.ledger.sweeps()}
        with self._lock:
            before, self._heads = self._heads or {}, heads
            for name in before.keys() - heads.keys():
                self._views.pop(name, None)
                self._lines.pop(name, None)
        self._count(n for n in before.keys() | heads.keys() if before.get(n) != heads.get(n))
        deadline = time.monotonic() + LINES_SECONDS
        for name, entry in reversed(heads.items()):
            is_open = name in self._views
            if not self._is_stale(name, entry) or not (is_open or time.monotonic() < deadline):
                continue
            try:
                with self._reading:
                    self._updated(name)
            except AutomlError as error:
                if is_open:
                    raise
                with self._lock:
                    self._lines[name], self._read[name] = {"error": str(error)}, entry.version
            self._count([name])
        self._answer(heads)

    def _answer(self, heads: Iterable[str]) -> None:
        """Take the answers that are ready, and ask for others while somebody looks."""
        with self._lock:
            views = {name: view for name, view in self._views.items() if name in heads}
        for name in [name for name, found in self._waiting.items() if found.done()]:
            found = self._waiting.pop(name)
            if name in views and found.exception() is None:
                views[name].take_answer(found.result())
                self._count([name])
        for name, view in views.items() if self._num_followers else ():
            if name not in self._waiting and view.wants_answer():
                if self._pool is None:  # a new process for each answer gives its memory back
                    context = get_context("spawn")
                    self._pool = ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1)
                self._waiting[name] = self._pool.submit(answer_of, self._store, name)

    def _is_stale(self, name: str, entry: SweepInfo) -> bool:
        with self._lock:
            view = self._views.get(name)
            state = view.snapshot.state if view else entry.state
            return self._read.get(name) != entry.version or state != entry.state

    def _updated(self, name: str) -> SweepData:
        with self._lock:
            view = self._views.get(name) or SweepData(self.ledger.follow(name), name, self._store)
            entry = (self._heads or {}).get(name)
        view.refresh()
        with self._lock:
            self._views[name] = view
            self._views.move_to_end(name)
            self._read[name] = entry.version if entry else ()
            total = sum(len(one.snapshot.trials) for one in self._views.values())
            while total > MAX_TRIALS and len(self._views) > 1:
                dropped, other = self._views.popitem(last=False)
                total -= len(other.snapshot.trials)
                self._lines[dropped] = other.row()
        return view

    def _count(self, changed: Iterable[str]) -> None:
        with self._lock:
            self._counts |= {name: self._counts.get(name, 0) + 1 for name in changed}


def answer_of(store: str, name: str) -> dict[str, Any]:
    """The answer of a sweep, as plain data."""
    from automl.report.answer import answer
    from automl.report.record import Record

    with closing(Ledger.open(store, readonly=True)) as ledger:
        return answer(Record.read(ledger, name)).to_dict()
