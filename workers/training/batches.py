"""Global batches from any point of any epoch on, prepared ahead in a thread where that is asked for."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from search_spaces.errors import DataError

if TYPE_CHECKING:
    from workers.workload import Batch, Trainable


@dataclass(frozen=True)
class Place:
    """Where a batch is: its epoch and its index in it, both from 0."""

    epoch: int = 0
    index: int = 0


def batches(
    workload: Trainable, start: Place, max_epochs: int | None
) -> Iterator[tuple[Place, Batch]]:
    """Every batch from `start` on with its place.

    Raises:
        DataError: an epoch has no batch.
    """
    epoch, skip = start.epoch, start.index
    while max_epochs is None or epoch < max_epochs:
        index = 0
        for index, batch in enumerate(workload.train_batches_from(epoch, skip), skip + 1):
            yield Place(epoch, index - 1), batch
        if index == 0 and skip == 0:
            raise DataError(f"workload {workload.name!r} has no training batch in epoch {epoch}")
        epoch, skip = epoch + 1, 0


class Prefetcher:
    """An iterator that runs another one in a thread, at most `depth` items ahead; errors arrive where they would."""

    def __init__(self, source: Iterator[tuple[Place, Batch]], depth: int) -> None:
        self._queue: queue.Queue[tuple[Place, Batch] | BaseException | None] = queue.Queue(
            max(1, depth)
        )
        self._closed = threading.Event()
        self._thread = threading.Thread(
            target=self._fill, args=(source,), name="batches", daemon=True
        )
        self._thread.start()

    def __iter__(self) -> Iterator[tuple[Place, Batch]]:
        return self

    def __next__(self) -> tuple[Place, Batch]:
        item = self._queue.get()
        if isinstance(item, tuple):
            return item
        self._put(item)  # a second call gets the same answer
        raise item if item is not None else StopIteration

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._thread.join()

    def _fill(self, source: Iterator[tuple[Place, Batch]]) -> None:
        end: BaseException | None = None
        try:
            for item in source:
                if not self._put(item):
                    return
        except BaseException as error:
            end = error
        self._put(end)

    def _put(self, item: tuple[Place, Batch] | BaseException | None) -> bool:
        while not self._closed.is_set():
            try:
                self._queue.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False
