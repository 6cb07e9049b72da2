"""Global batches from any position on, prepared ahead in a thread if the configuration says so."""

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from search_spaces.errors import DataError
from workers.workload import Batch, Trainable


@dataclass(frozen=True)
class BatchPosition:
    """The epoch of a batch and its index in the epoch, both from 0."""

    epoch: int = 0
    index: int = 0


def batches(
    workload: Trainable, start: BatchPosition, max_epochs: int | None
) -> Iterator[tuple[BatchPosition, Batch]]:
    """Every batch from `start` on, with its position.

    Raises:
        DataError: an epoch has no batch.
    """
    epoch = start.epoch
    skip = start.index
    while max_epochs is None or epoch < max_epochs:
        index = 0
        for index, batch in enumerate(workload.train_batches_from(epoch, skip), skip + 1):
            yield BatchPosition(epoch, index - 1), batch
        if index == 0 and skip == 0:
            raise DataError(f"workload {workload.name!r} has no training batch in epoch {epoch}")
        epoch += 1
        skip = 0


class Prefetcher:
    """An iterator that runs another one in a thread, at most `depth` items ahead.

    An error of the thread is raised by `next` at the position of the failed batch.
    """

    def __init__(self, source: Iterator[tuple[BatchPosition, Batch]], depth: int) -> None:
        self._queue: queue.Queue[tuple[BatchPosition, Batch] | BaseException | None] = queue.Queue(
            max(1, depth)
        )
        self._closed = threading.Event()
        self._thread = threading.Thread(
            target=self._fill, args=(source,), name="batches", daemon=True
        )
        self._thread.start()

    def __iter__(self) -> Iterator[tuple[BatchPosition, Batch]]:
        return self

    def __next__(self) -> tuple[BatchPosition, Batch]:
        item = self._queue.get()
        if isinstance(item, tuple):
            return item
        self._put(item)  # so that a second call ends in the same way
        raise item if item is not None else StopIteration

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._thread.join()

    def _fill(self, source: Iterator[tuple[BatchPosition, Batch]]) -> None:
        end: BaseException | None = None
        try:
            for item in source:
                if not self._put(item):
                    return
        except BaseException as error:
            end = error
        self._put(end)

    def _put(self, item: tuple[BatchPosition, Batch] | BaseException | None) -> bool:
        while not self._closed.is_set():
            try:
                self._queue.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False
