"""Answers of sweeps, worked out in a process of its own: a model takes seconds and memory."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from typing import Any

from automl.report.sweep_data import SweepData


class Answers:
    """Answers of the sweeps that somebody looks at.

    Args:
        store: location of the sweeps.
    """

    def __init__(self, store: str) -> None:
        self._store = store
        self._waiting: dict[str, Future[tuple[dict[str, Any], list[str]]]] = {}
        self._pool: ProcessPoolExecutor | None = None

    def follow(self, views: Mapping[str, SweepData], *, asking: bool) -> set[str]:
        """Give sweeps their new answers; the names of those that got one.

        Args:
            asking: whether to work out those that they want, too.
        """
        changed = set()
        for name, found in list(self._waiting.items()):
            if not found.done():
                continue
            del self._waiting[name]
            if name in views and found.exception() is None:
                views[name].take_answer(*found.result())
                changed.add(name)
        for name, view in views.items() if asking else ():
            if name not in self._waiting and view.wants_answer():
                self._waiting[name] = self._submit(name)
        return changed

    def close(self) -> None:
        """End the process."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _submit(self, name: str) -> Future[tuple[dict[str, Any], list[str]]]:
        if self._pool is None:  # a new process for each answer gives its memory back
            context = get_context("spawn")
            self._pool = ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1)
        return self._pool.submit(answer_of, self._store, name)


def answer_of(store: str, name: str) -> tuple[dict[str, Any], list[str]]:
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
